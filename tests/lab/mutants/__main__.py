"""Draw places by a seed, run the tests that can notice each change, and report the survivors.

    copies of the tree --> the tests, unchanged: they must pass --> which test reaches what
                                                                              |
    one change in a copy --> its module's own test files <--------------------+
                                |  all pass
                                v
                             the others that reach it, the quickest first, until one fails

Each result is printed and kept at once. A run that was interrupted, or whose --minutes are over,
goes on where it was. By itself, it stops at the first test that fails; with --by-file, it runs all
tests of a module's own files, and then prints those of their functions that notice no change.
"""

import argparse
import contextlib
import hashlib
import json
import os
import queue
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.lab.leaves import files_with
from tests.lab.mutants import report
from tests.lab.mutants.chosen import Chosen, file_of
from tests.lab.mutants.copies import HANGS, NOT_COPIED, Copy
from tests.lab.mutants.known import (
    CACHE,
    PACKAGE,
    TESTS,
    Map,
    Results,
    Row,
    test_files,
)
from tests.lab.mutants.sites import Site, sites

FOLDERS = (
    *("unit", "operations", "store", "lab/simulator", "scanner", "relay", "reshard"),
    *("app", "cli", "rules", "web", "metrics", "testing"),
)
# These compare the text of the package with their own, so they notice every change of it.
LEFT_OUT = "not test_a_safeguard_that_is_taken_out_is_missed"
SLOW = 60  # seconds more that tests may take than five times those of the map
HANG = 120  # seconds of one test
LONGEST = 600  # seconds more that tests may take until the first fails


def places(paths: list[Path]) -> dict[str, Site]:
    """Each place of these files and folders, by a name that other lines of its file leave as is."""
    found: dict[str, Site] = {}
    for above in paths:
        files = (path for path in [above, *above.rglob("*")] if path.suffix in (".py", ".lua"))
        for path in sorted(files):
            text, same = path.read_text(encoding="utf-8"), Counter[str]()
            for site in sites(path):
                _, _, where = site.told(text).partition(":")
                name = f"{path} {where.partition(':')[2]}"
                same[name] += 1
                found[f"{name} {same[name]}"] = site
    return found


def drawn(names: list[str], size: int, seed: int) -> list[str]:
    """That many of them. Those drawn stay the same if others come or go, or *size* grows."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())[:size]


def reached(copy: Copy, processes: int, kept: Map, marked: str) -> Chosen:
    """What each test reaches; run the files of which that is unknown, on the unchanged package."""
    if marked:
        files = list(map(str, files_with(Path(), marked)))
    else:
        files = test_files(*(TESTS / each for each in FOLDERS))
    if missing := kept.missing(files):
        print(f"running {len(missing)} test files on the unchanged package", flush=True)
        with tempfile.TemporaryDirectory(prefix="delayq-reached-") as folder:
            failed = copy.failures(
                *("-p", "tests.lab.mutants.reached", "-n", str(processes), "-k", LEFT_OUT),
                *(["-m", marked] if marked else []),
                *missing,
                DELAYQ_REACHED=folder,
            )
            wrote = [json.loads(path.read_text("utf-8")) for path in Path(folder).iterdir()]
        for each in failed:
            print("left out, as it fails on the unchanged package:", each, flush=True)
        tests = {name: each for process in wrote for name, each in process.items()}
        if not tests:
            sys.exit("no test ran")
        kept.add(missing, tests, {each.split(" - ")[0] for each in failed})
    return Chosen(kept.tests(files))


@contextlib.contextmanager
def changed(site: Site, copy: Copy) -> Iterator[None]:
    path = copy.tree / site.path
    whole = path.read_text(encoding="utf-8")
    path.write_text(site.apply(whole), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(whole, encoding="utf-8")


def failures(tests: list[str], seconds: float, copy: Copy, *, whole: bool) -> list[str]:
    """The tests that fail, each with its error; if not *whole*, the first one only."""
    if not tests:
        return []
    names = copy.tree / "names.txt"
    names.write_text("\n".join(tests), encoding="utf-8")
    run = ["-n", "0", "--timeout", str(HANG), f"@{names}"]
    if whole:
        failed = copy.failures(*run, seconds=5 * seconds + SLOW)
        # Else the first hangs, or the machine is slow.
        if failed != [HANGS]:
            return failed
    return copy.failures("-x", *run, seconds=5 * seconds + LONGEST)


class Trial:
    """Tries changes, one in each copy of the tree."""

    def __init__(self, tests: Chosen, results: Results, asked: argparse.Namespace):
        self._tests, self._results, self._asked = tests, results, asked
        self._until = time.monotonic() + 60 * asked.minutes
        self.copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()

    def row(self, name: str, site: Site, own: list[str]) -> Row | None:
        """The result of a change; none if the time is over."""
        row = self._results.get(name)
        if row is not None and row["own"] != own:
            row = None
        if row is None and time.monotonic() < self._until:
            row = self._tried(name, site, own)
        if row is not None:
            print(report.line(row), flush=True)
        return row

    def _tried(self, name: str, site: Site, own: list[str]) -> Row:
        every, most = self._tests.tests(site), self._asked.seconds
        first = self._tests.within([each for each in every if file_of(each) in own], most)
        others = self._tests.within([each for each in every if file_of(each) not in own], most)
        copy = self.copies.get()
        try:
            with changed(site, copy):
                by = by_own = self._run(first, copy, whole=self._asked.by_file)
                if not by_own:
                    by = self._run(others, copy, whole=False)
        finally:
            self.copies.put(copy)
        told = site.told(Path(site.path).read_text(encoding="utf-8"))
        decisive = [each for each in by if each != HANGS] if by else every
        row = {
            "told": told,
            "module": site.path,
            "own": own,
            "by": by,
            "by_own": bool(by_own),
            "ran": len(first) + len(others),
            "of": len(every),
        }
        return self._results.add(name, row, [site.path, *own, *map(file_of, decisive)])

    def _run(self, tests: list[str], copy: Copy, *, whole: bool) -> list[str]:
        return failures(tests, self._tests.seconds(tests), copy, whole=whole)


def tried(asked: argparse.Namespace, folder: Path) -> None:
    """Try each change that was drawn, in copies of the tree below a folder."""
    name, above = ("mutants-core", PACKAGE / "core") if asked.core else ("mutants", PACKAGE)
    sites_of = places(asked.paths or [above])
    chosen = drawn(list(sites_of), asked.size, asked.seed)
    results = Results(name, asked.seconds, whole=asked.by_file)
    made = [Copy(folder / str(number)) for number in range(asked.processes)]
    pool = ThreadPoolExecutor(asked.processes)
    try:
        tests = reached(made[0], asked.processes, Map(name), marked="core" if asked.core else "")
        trial = Trial(tests, results, asked)
        for copy in made:
            trial.copies.put(copy)
        by_module: dict[str, list[Site]] = {}
        for each in chosen:
            by_module.setdefault(sites_of[each].path, []).append(sites_of[each])
        own = {module: tests.own_files(module, some) for module, some in by_module.items()}
        found = pool.map(
            lambda each: trial.row(each, sites_of[each], own[sites_of[each].path]), chosen
        )
        rows = [row for row in found if row is not None]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for copy in made:
            copy.stop()
        pool.shutdown()
    print("", report.survivors(rows), "", sep="\n")
    if asked.by_file:
        print("Test functions that notice none of the changes of their modules:")
        print(*report.noticing(rows, tests), "", sep="\n")
    print(report.summary(rows, len(chosen), len(sites_of), asked.seed))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="./tests/run mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="*", type=Path, help="only of these files and folders")
    parser.add_argument("--by-file", action="store_true", help="all tests of a module's own files")
    parser.add_argument("--core", action="store_true", help="the core, by the tests marked core")
    parser.add_argument("--size", type=int, default=80, help="changes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="then begin no other")
    parser.add_argument("--seconds", type=float, default=300, help="of tests for each change")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    if sys.version_info < (3, 12):
        sys.exit("needs Python 3.12 or later, for sys.monitoring")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="delayq-mutants-") as folder:
        # The tree may change meanwhile.
        os.chdir(shutil.copytree(".", f"{folder}/unchanged", ignore=NOT_COPIED))
        tried(asked, Path(folder))


if __name__ == "__main__":
    main()
