"""``./tests/run comparison``: run every probe on every way, and print the table."""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from tests.lab.comparison import report
from tests.lab.comparison.rows import ANSWERS, FIGURES, ROWS, MeasuredRow
from tests.lab.comparison.ways import COLUMNS
from tests.support.worker import ROOT

# Probes that answer mostly wait; those that measure alone come after them.
AT_ONCE = 8
TIMEOUT = 240
OURS = COLUMNS[0].name

Job = tuple[str, str]


def main() -> int:
    options = _arguments()
    started = time.monotonic()
    found = {job: [_said(job, one) for one in said] for job, said in _asked(options)}
    cells = _cells(found)
    table = report.table(cells, options.ways, options.rows)
    print(f"\n{report.heading()}\n\n{table}\n{time.monotonic() - started:.0f} s")
    if options.write:
        report.write(cells)
    return 1 if any(report.FAILED in cell for cell in cells.values()) else 0


def _arguments() -> argparse.Namespace:
    ways, rows = [one.name for one in COLUMNS], [one.name for one in ROWS]
    parser = argparse.ArgumentParser(prog="./tests/run comparison", description=__doc__)
    parser.add_argument(
        "--ways", nargs="+", choices=ways, default=ways, metavar="NAME", help=", ".join(ways)
    )
    parser.add_argument(
        "--rows", nargs="+", choices=rows, default=rows, metavar="NAME", help=", ".join(rows)
    )
    parser.add_argument(
        "--write", action="store_true", help="write the table into tests/lab/comparison/README.md"
    )
    return parser.parse_args()


def _asked(options: argparse.Namespace) -> Iterator[tuple[Job, list[str]]]:
    """The output of each process; first those that may run side by side."""
    beside = [one.name for one in ANSWERS if one.name in options.rows]
    # One probe may fill several rows.
    alone = {one.probe: one for one in FIGURES if one.name in options.rows}.values()
    jobs = [(way, row) for row in beside for way in options.ways]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from zip(jobs, ([said] for said in pool.map(_ask, jobs)), strict=True)
    for row in alone:
        rounds = [[_ask((way, row.name)) for way in options.ways] for _ in range(row.rounds)]
        for way, *said in zip(options.ways, *rounds, strict=True):
            yield (way, row.name), said


def _ask(job: Job) -> str:
    """Run one probe; return its last line, or how it failed."""
    [python] = [one.python for one in COLUMNS if one.name == job[0]]
    command = [python, "-m", "tests.lab.comparison.ask", *job]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return report.FAILED
    if done.returncode:
        print(f"{job}:\n{done.stderr[-3000:]}", file=sys.stderr)
        return report.FAILED
    return done.stdout.splitlines()[-1]


def _said(job: Job, printed: str) -> object:
    print(f"{job[0]:16} {job[1]:11} {printed}", file=sys.stderr)
    return printed if printed == report.FAILED else json.loads(printed)


def _cells(found: dict[Job, list]) -> report.Cells:
    cells = {
        job: report.FAILED if said[0] == report.FAILED else said[0][0]
        for job, said in found.items()
        if not _measured(job)
    }
    for row in FIGURES:
        jobs = {way: said for (way, name), said in found.items() if _probe(name) == row.probe}
        cells |= {(way, row.name): _cell(row, said, jobs.get(OURS)) for way, said in jobs.items()}
    return cells


def _measured(job: Job) -> bool:
    return any(one.name == job[1] for one in FIGURES)


def _probe(name: str) -> object:
    return next(one.probe for one in ROWS if one.name == name)


def _cell(row: MeasuredRow, rounds: list, ours: list | None) -> str:
    if report.FAILED in rounds:
        return report.FAILED
    figures = {name: median(one[name] for one in rounds) for name in rounds[0]}
    if "calls_per_s" in figures and ours and report.FAILED not in ours:
        pairs = zip(rounds, ours, strict=True)
        figures["ratio"] = median(one["calls_per_s"] / other["calls_per_s"] for one, other in pairs)
    return row.cell(figures)


if __name__ == "__main__":
    sys.exit(main())
