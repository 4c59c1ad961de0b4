"""Draw a sample by a seed, run the tests that can notice each change, and report the survivors.

    copies of the tree --> all tests, unchanged: they must pass --> which test reaches what
                                                                              |
    one change in a copy --> the tests that reach it, the quickest first <----+
                                |
                                +--> died, by which test; or SURVIVED

Each result is printed and kept at once. A run that was interrupted does not repeat them.
"""

import argparse
import hashlib
import json
import os
import queue
import random
import shutil
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.lab.mutants.chosen import Chosen
from tests.lab.mutants.copies import NOT_COPIED, Copy
from tests.lab.mutants.sites import Site, sites

PACKAGE = Path("celery_delayq")
ROOMS = ("store", "handover", "scheduling")  # whose Python is sampled; and all Lua
FOLDERS = (
    *("unit", "operations", "store", "protocol", "lab/simulator", "scanner", "relay", "reshard"),
    "app",
)
# These compare the text of the package with their own, so they notice every change of it.
LEFT_OUT = "not test_a_safeguard_that_is_taken_out_is_missed"
CACHE = Path(".pytest_cache").absolute()
HANGS = 600  # seconds beside those that the tests took


def sample(size: int, seed: int) -> list[Site]:
    """That many changes for each language, spread over the lines of its files."""
    python = [
        each
        for room in ROOMS
        for path in (PACKAGE / "core" / room).rglob("*.py")
        for each in sites(path)
    ]
    lua = [each for path in PACKAGE.rglob("*.lua") for each in sites(path)]
    chosen = random.Random(seed)
    by_name = lambda site: (site.path, site.start, site.new)  # noqa: E731
    return [
        each
        for all_of_it in (python, lua)
        for each in chosen.sample(sorted(all_of_it, key=by_name), size)
    ]


def state_of(*folders: Path) -> str:
    """A name for the content of these folders."""
    files = sorted(path for folder in folders for path in folder.rglob("*.*") if path.is_file())
    kept = (path for path in files if path.suffix in (".py", ".lua"))
    return hashlib.sha256(
        b"".join(str(each).encode() + each.read_bytes() for each in kept)
    ).hexdigest()


def reached(copy: Copy, processes: int, file: Path, state: str, which: tuple[str, ...]) -> Chosen:
    """Run these tests on the unchanged package, or read the file of the run that did."""
    if file.exists() and (kept := json.loads(file.read_text(encoding="utf-8")))["state"] == state:
        return Chosen(kept["found"], kept["unsteady"])
    print("running the tests on the unchanged package", flush=True)
    with tempfile.TemporaryDirectory(prefix="delayq-reached-") as folder:
        failed = copy.failures(
            *("-p", "tests.lab.mutants.reached", "-n", str(processes), "-k", LEFT_OUT),
            *which,
            DELAYQ_REACHED=folder,
        )
        found = [json.loads(path.read_text(encoding="utf-8")) for path in Path(folder).iterdir()]
    unsteady = []
    for each in failed:
        name = each.split(" - ")[0]
        if not name.startswith("tests/") or copy.failures("-n", "0", name):
            sys.exit(f"a test fails on the unchanged package: {each}")
        print("left out, as it failed once, and then passed:", each, flush=True)
        unsteady.append(name)
    kept = {"state": state, "found": found, "unsteady": unsteady}
    file.write_text(json.dumps(kept), encoding="utf-8")
    return Chosen(found, unsteady)


def noticed(site: Site, tests: list[str], seconds: float, copy: Copy) -> str | None:
    """The first test that fails with this change, and its error; None if all pass."""
    if not tests:
        return None
    path, names = copy.tree / site.path, copy.tree / "names.txt"
    whole = path.read_text(encoding="utf-8")
    names.write_text("\n".join(tests), encoding="utf-8")
    path.write_text(site.apply(whole), encoding="utf-8")
    try:
        failed = copy.failures("-x", "-n", "0", f"@{names}", seconds=seconds)
        return failed[0] if failed else None
    finally:
        path.write_text(whole, encoding="utf-8")


def known(kept: Path, package: str, survived: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The results to keep: of this package; and of survivors, those that met as many tests."""
    rows = kept.read_text(encoding="utf-8").splitlines() if kept.exists() else []
    return {
        row["change"]: row
        for row in map(json.loads, rows)
        if row["package"] == package and (row["by"] or survived.items() <= row.items())
    }


def line(row: dict[str, Any]) -> str:
    if row["by"]:
        return f"died      {row['change']}\n          {row['by']}"
    return (
        f"SURVIVED  {row['change']}\n          {row['ran']} of the {row['of']} tests that reach it"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="./tests/run mutants", description=__doc__)
    parser.add_argument("--size", type=int, default=40, help="changes of each language")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300, help="of tests for each change")
    parser.add_argument("--core", action="store_true", help="only by the tests marked core")
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


def tried(asked: argparse.Namespace, folder: Path) -> None:
    """Try each change of the sample, in copies of the tree below a folder."""
    name, which = "mutants", tuple(f"tests/{each}" for each in FOLDERS)
    if asked.core:
        name, which = "mutants-core", ("-m", "core")
    kept = CACHE / f"{name}.jsonl"
    package, everything = state_of(PACKAGE), state_of(PACKAGE, Path("tests"))
    run_as = {"everything": everything, "seconds": asked.seconds}
    before, results = known(kept, package, run_as), {}
    chosen = sample(asked.size, asked.seed)
    copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()

    def run(site: Site) -> None:
        told = site.told(Path(site.path).read_text(encoding="utf-8"))
        results[told] = before.get(told)
        if not results[told]:
            every = tests.tests(site)
            some = tests.within(every, asked.seconds)
            copy = copies.get()
            by = noticed(site, some, 3 * asked.seconds + HANGS, copy)
            copies.put(copy)
            results[told] = {"change": told, "by": by, "ran": len(some), "of": len(every)}
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**results[told], **run_as, "package": package}) + "\n")
        print(line(results[told]), flush=True)

    made = [Copy(folder / str(number)) for number in range(asked.processes)]
    pool = ThreadPoolExecutor(asked.processes)
    try:
        tests = reached(made[0], asked.processes, CACHE / f"{name}-reached.json", everything, which)
        for copy in made:
            copies.put(copy)
        list(pool.map(run, chosen))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for copy in made:
            copy.stop()
        pool.shutdown()
    print(", ".join(died(results, kind) for kind in (".py", ".lua")), f"(seed {asked.seed})")


def died(results: dict[str, dict[str, Any]], kind: str) -> str:
    rows = [row for change, row in results.items() if f"{kind}:" in change]
    return f"{sum(bool(row['by']) for row in rows)} of {len(rows)} in {kind} died"


if __name__ == "__main__":
    main()
