"""``./tests/run failovers``: masters fail repeatedly; prints times to recover, and losses.

Each run has its own group, with callers and a scanner at work while its master fails.
"""

import argparse
import logging
import signal
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing

from celery_delayq import DelayQ
from tests.sentinel.faults import FOUND, demote, failover, kill, silence
from tests.sentinel.trial import Trial, tried
from tests.sentinel.work import note, settings
from tests.support.apps import celery_state_kept, new_app
from tests.support.redis_programs import redis_binaries
from tests.support.sentinels import SentinelGroup

ROWS = {
    "`kill -9` of the master": kill,
    "the master is silent": silence,
    "`SENTINEL FAILOVER`": failover,
    "the same, and the old master closes no link": demote,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="./tests/run failovers", description=__doc__)
    parser.add_argument("--runs", type=int, default=10, metavar="N", help="of each; default: 10")
    options = parser.parse_args()
    # Clients rightly log each failure; hide these lines, so that the table stays readable.
    logging.disable(logging.WARNING)
    # A plain `kill` skips every clean-up, so turn it into an orderly end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sound = True
    print(f"Redis {redis_binaries()[0][0]}; seconds since the election, median and longest\n")
    print("| fault | runs | a call is done | a hand-over is done |\n| --- | ---: | ---: | ---: |")
    for name, fault in ROWS.items():
        trials = [_one(fault) for _ in range(options.runs)]
        calls, moves = zip(*(trial.raw for trial in trials), strict=True)
        print(f"| {name} | {len(trials)} | {_figures(calls)} | {_figures(moves)} |", flush=True)
        for problem in _problems(trials):
            sound = False
            print(problem, file=sys.stderr)
    return 0 if sound else 1


def _one(fault) -> Trial:
    with celery_state_kept(), ExitStack() as stack:
        group = stack.enter_context(SentinelGroup(replicas=1))

        def new_delayq() -> DelayQ:
            conf = settings(group)
            made = DelayQ(new_app(conf.pop("broker_url"), **conf))
            made.note = made.app.task(name="note", shared=False)(note)
            return stack.enter_context(closing(made))

        def start_scanner(delayq: DelayQ) -> None:
            scanner = delayq.scanner()
            stack.callback(scanner.stop)
            scanner.start()

        return tried(group, new_delayq, start_scanner, fault)


def _figures(seconds: tuple[float, ...]) -> str:
    # A step that was done before a sentinel announced the new master took no time.
    some = [max(0.0, one) for one in seconds]
    return f"{statistics.median(some):.2f}, {max(some):.2f}"


def _problems(trials: list[Trial]) -> Iterator[str]:
    for number, trial in enumerate(trials):
        yield from (f"    run {number}: {problem}" for problem in trial.problems)
        slow = max(trial.caller, trial.scanner)
        if slow > FOUND:
            yield f"    run {number}: {slow:.2f} s, not counting how long the machine stood still"


if __name__ == "__main__":
    sys.exit(main())
