"""``./tests/run faults``: inject each fault several times, and print a table of the outcomes."""

import argparse
import contextlib
import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from tests.lab.faults.history import KINDS
from tests.lab.faults.injected import FAULTS, Fault
from tests.lab.faults.site import TO_RABBIT, Outcome, Site
from tests.support.rabbit_server import RabbitServer
from tests.support.redis_programs import redis_binaries

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- the table of ./tests/run faults -->", "<!-- its end -->"
LEFT_OVER = "left over"
HEADINGS = ("fault", "path", "runs", "entries", *KINDS, "seconds to recover")

Row = tuple[str, ...]


def main() -> int:
    options = _arguments()
    # By default SIGTERM skips every clean-up; so it becomes an orderly end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rows, sound = [], True
    with contextlib.ExitStack() as stack:
        for fault, path in _wanted(options.names):
            started = time.monotonic()
            try:
                row, differences = _tried(options, fault, path, stack)
            except Exception:
                # A fault that fails must not cost the rows of the others.
                traceback.print_exc()
                sound = False
                continue
            rows.append(row)
            sound = sound and not differences
            took = time.monotonic() - started
            _say(f"{fault.name}, {path}: {took:.0f} s", *differences)
    text = _table(options, rows)
    print(text)
    if options.write:
        _write(text)
    return 0 if sound else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./tests/run faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="words", help="rows with these words alone")
    parser.add_argument("--runs", type=int, default=2, metavar="N", help="of each; default: 2")
    parser.add_argument("--seed", default=str(time.time_ns()), metavar="S")
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    options = parser.parse_args()
    if options.write and options.names:
        parser.error("--write takes the whole table")
    return options


def _wanted(names: list[str]) -> Iterator[tuple[Fault, str]]:
    for fault in FAULTS:
        for path in fault.paths:
            if all(name.lower() in f"{fault.name} {path}".lower() for name in names):
                yield fault, path


_rabbit: list[RabbitServer] = []


def _tried(
    options: argparse.Namespace, fault: Fault, path: str, stack: contextlib.ExitStack
) -> tuple[Row, list[str]]:
    if path == TO_RABBIT and not _rabbit:
        _rabbit.append(stack.enter_context(RabbitServer()))
    rabbit = _rabbit[0] if path == TO_RABBIT else None
    seed = f"{options.seed} {fault.name}"
    with Site(path, seed, rabbit=rabbit, config=fault.config, workers=fault.workers) as site:
        since = fault.repeated(site, options.runs)
        outcome = site.finish()
    return _row(fault, path, since, outcome), outcome.differences


def _row(fault: Fault, path: str, since: list[int], outcome: Outcome) -> Row:
    verdict = outcome.verdict
    counted = {kind: verdict.count(kind) for kind in KINDS}
    counted[LEFT_OVER] += verdict.dead + len(outcome.findings)
    recovered = max(map(outcome.seconds_to_recover, since))
    facts = (len(since), verdict.scheduled, *counted.values())
    return (fault.name, path, *(f"{fact:,}" for fact in facts), f"{recovered:.1f}")


def _table(options: argparse.Namespace, rows: list[Row]) -> str:
    lines = [HEADINGS, ("---", "---", *["---:"] * (len(HEADINGS) - 2)), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    machine = (
        f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, "
        f"Redis {redis_binaries()[0][0]}"
    )
    return f"On {machine}; the longest recovery of {options.runs} runs.\n\n{table}"


def _write(text: str) -> None:
    before, rest = README.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    README.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def _say(*lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
