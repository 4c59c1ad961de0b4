"""``./tests/run leaves [--lines] [--only PART]``: the tests of the rest without each part in turn.

For each leaf it copies the project, deletes the leaf's folder and its line in
``celery_delayq/core/leaves.py``, and runs the tests marked ``core`` or ``operations`` on the copy.
In a last trial it deletes all leaves and the operations, and runs the tests marked ``core``. With
``--lines`` it runs no test, but counts the lines of the core, the operations and each leaf.
"""

import argparse
import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from celery_delayq.core.leaves import LEAVES

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "celery_delayq"
CONTRIB = PACKAGE / "contrib"
MARKED = re.compile(r"pytest\.mark\.(\w+)")
LOGS = ROOT / ".pytest_cache" / "leaves"
LEFT_BEHIND = shutil.ignore_patterns(".git", ".venv*", ".*_cache", "__pycache__")
CORE, OPERATIONS = "core", "operations"  # markers, and folders
ALONE = "the core alone"


class Size(NamedTuple):
    """Files, lines, and lines of code: without docstrings, comments and blank lines."""

    files: int
    lines: int
    code: int


def size_of(paths: list[Path]) -> Size:
    texts = [path.read_text(encoding="utf-8") for path in paths]
    return Size(len(texts), sum(map(len, map(str.splitlines, texts))), sum(map(_code, texts)))


def _code(text: str) -> int:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    spoken: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            spoken.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in spoken
        for number, line in enumerate(text.splitlines(), 1)
    )


def sizes() -> dict[str, Size]:
    """The sizes of the core, the operations and each leaf."""
    belongs = {path: _part_of(path) for path in sorted(PACKAGE.rglob("*.py"))}
    return {
        name: size_of([path for path, whose in belongs.items() if whose == name])
        for name in (CORE, OPERATIONS, *LEAVES)
    }


def _part_of(path: Path) -> str:
    for name, leaf in LEAVES.items():
        place = CONTRIB / leaf.folder
        if path.is_relative_to(place) or path == place.with_suffix(".py"):
            return name
    if path.is_relative_to(CONTRIB):
        # pytest finds the plugin there; the others are shared by leaves.
        return {"pytest.py": "testing", "store_query.py": "control"}.get(path.name, "cluster")
    return OPERATIONS if path.is_relative_to(PACKAGE / OPERATIONS) else CORE


def files_with(tree: Path, *markers: str) -> list[Path]:
    """The files with one of these markers; the others may import a part that was removed."""
    return [
        path
        for path in sorted((tree / "tests").rglob("test_*.py"))
        if set(MARKED.findall(path.read_text(encoding="utf-8"))) & {*markers}
    ]


def take_out(name: str, tree: Path) -> None:
    """Delete a leaf's folder and line in a copy of the project."""
    place = tree / CONTRIB.relative_to(ROOT) / LEAVES[name].folder
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.with_suffix(".py").unlink()
    _drop_line(tree, name)


def take_out_all(tree: Path) -> None:
    """Delete the leaves and the operations in a copy of the project, and their lines."""
    shutil.rmtree(tree / CONTRIB.relative_to(ROOT))
    shutil.rmtree(tree / PACKAGE.name / OPERATIONS)
    for name in LEAVES:
        _drop_line(tree, name)
    registry = tree / PACKAGE.name / "core" / "leaves.py"
    text = registry.read_text(encoding="utf-8")
    registry.write_text(
        re.sub(r"^OPERATIONS = .*", 'OPERATIONS = ""', text, flags=re.MULTILINE), encoding="utf-8"
    )


def _drop_line(tree: Path, name: str) -> None:
    registry = tree / PACKAGE.name / "core" / "leaves.py"
    lines = registry.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(f'    "{name}": Leaf(')]
    if len(kept) != len(lines) - 1:
        raise ValueError(f"{name} has not one line in {registry}")
    registry.write_text("".join(kept), encoding="utf-8")


def trial(name: str) -> tuple[bool, str]:
    """Whether the tests of the rest pass without a part, and pytest's last line."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{name}.log"
    with tempfile.TemporaryDirectory(prefix="delayq-leaves-") as folder:
        tree = Path(folder, ROOT.name)
        shutil.copytree(ROOT, tree, ignore=LEFT_BEHIND, symlinks=True)
        if name == ALONE:
            take_out_all(tree)
        else:
            take_out(name, tree)
        markers = [CORE] if name == ALONE else [CORE, OPERATIONS]
        which = f"{CORE} and not {OPERATIONS}" if name == ALONE else f"{CORE} or {OPERATIONS}"
        # The plugin belongs to a leaf, but the environment still names it.
        command = ["-m", "pytest", "-q", "-n", "2", "-m", which, "-p", "no:celery_delayq"]
        with log.open("w") as out:
            status = subprocess.run(
                [sys.executable, *command, *map(str, files_with(tree, *markers))],
                cwd=tree,
                env={**os.environ, "PYTHONPATH": str(tree)},
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
    said = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return status == 0, said[-1] if said else "nothing was printed"


def rows(names: list[str], *, tries: bool) -> Iterator[tuple[str, bool]]:
    """Each line of the table, and whether it is as expected."""
    found = {**sizes(), ALONE: Size(0, 0, 0)}
    for name in names:
        fine, said = trial(name) if tries and name not in (CORE, OPERATIONS) else (True, "")
        verdict = "" if not said else f"{'ok' if fine else 'FAILED'}: {said}"
        files, lines, code = found[name]
        yield f"{name:14}  {files:5d}  {lines:6d}  {code:6d}  {verdict}".rstrip(), fine


def main() -> None:
    parser = argparse.ArgumentParser(prog="./tests/run leaves", description=__doc__)
    parser.add_argument("--only", choices=[*LEAVES, CORE], action="append", help="repeatable")
    parser.add_argument("--lines", action="store_true", help="count lines, and run nothing")
    asked = parser.parse_args()
    # By default SIGTERM would leave the tests running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"{'':14}  files   lines    code  the tests of the rest without it")
    chosen = [ALONE if name == CORE else name for name in asked.only or ()]
    all_fine = True
    names = chosen or [CORE, OPERATIONS, *LEAVES, *[ALONE] * (not asked.lines)]
    for row, fine in rows(names, tries=not asked.lines):
        print(row, flush=True)
        all_fine = all_fine and fine
    sys.exit(not all_fine)


if __name__ == "__main__":
    main()
