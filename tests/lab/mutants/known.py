"""What earlier runs found, and whether it still holds; in pytest's cache.

map      which tests reach what: of each test file, until it or anything it uses changes
results  of each change: until its module changes, or a test file on which the result rests
"""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE, TESTS = Path("celery_delayq"), Path("tests")
OURS = TESTS / "lab" / "mutants"
CACHE = Path(".pytest_cache").absolute()
Row = dict[str, Any]


@cache
def digest(path: str) -> str:
    """A name for the content of a file; empty if it is gone."""
    file = Path(path)
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def test_files(*folders: Path) -> list[str]:
    return sorted(str(path) for folder in folders for path in folder.rglob("test_*.py"))


def used() -> str:
    """A name for the content of the package, and of what the test files share."""
    files = (path for folder in (PACKAGE, TESTS) for path in folder.rglob("*.*"))
    shared = [
        str(path)
        for path in files
        if path.suffix in (".py", ".lua")
        and not path.name.startswith("test_")
        and not path.is_relative_to(OURS)
    ]
    return hashlib.sha256("".join(map(digest, sorted(shared))).encode()).hexdigest()


class Map:
    """What the tests of each file reach, in a file of the cache."""

    def __init__(self, name: str):
        self._file = CACHE / f"{name}-map.json"
        self._files: dict[str, Row] = {}
        if self._file.exists():
            kept = json.loads(self._file.read_text(encoding="utf-8"))
            self._files = kept["files"] if kept["used"] == used() else {}

    def missing(self, files: list[str]) -> list[str]:
        """Those of the files that have to run."""
        return [each for each in files if self._files.get(each, {}).get("digest") != digest(each)]

    def add(self, files: list[str], tests: Row, failed: set[str]) -> None:
        """Keep what the tests of these files reach, without those that failed."""
        for file in files:
            own = {name: each for name, each in tests.items() if name.startswith(f"{file}::")}
            for name in own.keys() & failed:
                del own[name]
            self._files[file] = {"digest": digest(file), "tests": own}
        kept = {"used": used(), "files": self._files}
        self._file.write_text(json.dumps(kept), encoding="utf-8")

    def tests(self, files: list[str]) -> Row:
        return {name: each for file in files for name, each in self._files[file]["tests"].items()}


class Results:
    """The results of changes, in a file of the cache.

    Args:
        name: Of the file.
        seconds: Those that a change must have survived.
        whole: Whether all tests of a module's own files ran, and not only until one failed.
    """

    def __init__(self, name: str, seconds: float, *, whole: bool):
        self._file = CACHE / f"{name}.jsonl"
        self._seconds, self._whole = seconds, whole
        text = self._file.read_text(encoding="utf-8") if self._file.exists() else ""
        self._rows = {row["change"]: row for row in map(json.loads, text.splitlines())}

    def get(self, change: str) -> Row | None:
        row = self._rows.get(change)
        return row if row and self._holds(row) else None

    def _holds(self, row: Row) -> bool:
        same = all(digest(path) == known for path, known in row["files"].items())
        long_enough = bool(row["by"]) or row["seconds"] >= self._seconds
        return same and long_enough and (row["whole"] or not self._whole)

    def add(self, change: str, row: Row, files: list[str]) -> Row:
        """Keep a result, which holds as long as these files stay the same."""
        rests_on = {path: digest(path) for path in files}
        how = {"seconds": self._seconds, "whole": self._whole, "files": rests_on}
        kept = {"change": change, **row, **how}
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(kept) + "\n")
        return kept
