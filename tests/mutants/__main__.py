"""Draw a sample by a seed, run the tests that should notice each, and report the survivors."""

import argparse
import contextlib
import json
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from tests.mutants.sites import Site, sites
from tests.support import durations

PACKAGE = Path("celery_delayq")
# The files that are sampled, and the tests that should notice a change.
PYTHON = {
    "store": ("tests/unit", "tests/operations", "tests/store", "tests/scanner", "tests/app"),
    "handover": ("tests/unit", "tests/scanner", "tests/relay", "tests/store", "tests/worker"),
    "scheduling": ("tests/unit", "tests/app"),
}
LUA = ("tests/operations", "tests/store", "tests/simulator", "tests/scanner", "tests/app")
SECONDS = 1200  # one whole run; a mutant that hangs for so long is noticed
NOT_COPIED = shutil.ignore_patterns(".venv*", ".git", "__pycache__", ".*_cache", ".hypothesis")


def sample(size: int, seed: int) -> list[Site]:
    """That many changes for each language, spread over the lines of its files."""
    python = [
        each for room in PYTHON for path in (PACKAGE / room).rglob("*.py") for each in sites(path)
    ]
    lua = [each for path in PACKAGE.rglob("*.lua") for each in sites(path)]
    chosen = random.Random(seed)
    by_name = lambda site: (site.path, site.start, site.new)  # noqa: E731
    return [
        each
        for all_of_it in (python, lua)
        for each in chosen.sample(sorted(all_of_it, key=by_name), size)
    ]


def noticed(site: Site, copy: Path) -> str | None:
    """The first test that fails with this change; None if all pass."""
    path = copy / site.path
    whole = path.read_text(encoding="utf-8")
    path.write_text(site.apply(whole), encoding="utf-8")
    try:
        return _failure(_files(_folders(site)), copy)
    finally:
        path.write_text(whole, encoding="utf-8")


def _folders(site: Site) -> list[str]:
    if site.path.endswith(".lua"):
        return list(LUA)
    return [each for each in PYTHON[Path(site.path).parts[1]] if Path(each).is_dir()]


def _files(folders: list[str]) -> list[str]:
    """The files of tests in some folders, the quickest first: most changes die there."""
    return sorted(
        (str(path) for folder in folders for path in Path(folder).rglob("test_*.py")),
        key=lambda name: (_seconds()[name], name),
    )


@cache
def _seconds() -> Counter[str]:
    """The seconds of each file of tests in the suite's last run; empty if it never ran."""
    seconds: Counter[str] = Counter()
    if durations.FILE.exists():
        for test, taken in json.loads(durations.FILE.read_text(encoding="utf-8")).items():
            seconds[test.split("::")[0]] += taken
    return seconds


def _failure(files: list[str], copy: Path) -> str | None:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "--tb=no", "-n", "0", *files]
    # The copy comes before the installed package, also in processes that the tests start.
    env = {**os.environ, "PYTHONPATH": str(copy), "CI": "true"}
    process = subprocess.Popen(
        command, cwd=copy, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.communicate()
        return "(hangs)"
    if process.returncode == 0:
        return None
    first = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
    return first[1] if first else "(does not start)"


def main() -> None:
    parser = argparse.ArgumentParser(prog="./tests/run mutants", description=__doc__)
    parser.add_argument("--size", type=int, default=40, help="changes of each language")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--file", type=Path, default=Path(".pytest_cache", "mutants.json"))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    chosen = sample(asked.size, asked.seed)
    copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
    results: dict[str, str | None] = {}

    def run(site: Site) -> None:
        told = site.told(Path(site.path).read_text(encoding="utf-8"))
        copy = copies.get()
        results[told] = noticed(site, copy)
        copies.put(copy)
        print("died    " if results[told] else "SURVIVED", told, "--", results[told], flush=True)

    with tempfile.TemporaryDirectory(prefix="delayq-mutants-") as folder:
        for number in range(asked.processes):
            copies.put(Path(shutil.copytree(".", f"{folder}/{number}", ignore=NOT_COPIED)))
        with ThreadPoolExecutor(asked.processes) as pool:
            list(pool.map(run, chosen))
    asked.file.parent.mkdir(exist_ok=True)
    asked.file.write_text(json.dumps(results, indent=1), encoding="utf-8")
    died = sum(each is not None for each in results.values())
    print(f"{died} of {len(results)} died (seed {asked.seed}); kept in {asked.file}")


if __name__ == "__main__":
    main()
