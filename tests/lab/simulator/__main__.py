"""Run seeds until the time is over, or until one of them finds something."""

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable
from functools import partial

from tests.lab.simulator.server import Lab
from tests.lab.simulator.shorten import shortened
from tests.lab.simulator.simulation import Result, report, simulate
from tests.support.redis_server import RedisServer


def main() -> int:
    parser = argparse.ArgumentParser(prog="./tests/run simulate", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long to go on")
    parser.add_argument("--seed", type=int, help="replay this one, and show its whole history")
    parser.add_argument("--shards", type=int, default=1, help="with this number of shards")
    parser.add_argument("--rules", action="store_true", help="recurring rules in every history")
    options = parser.parse_args()
    logging.getLogger("celery_delayq").setLevel(logging.CRITICAL)  # it warns of each fault
    with RedisServer() as redis_server:
        lab = Lab(redis_server)
        run = partial(simulate, lab, shards=options.shards, rules=options.rules)
        try:
            return (
                _replay(run, options.seed)
                if options.seed is not None
                else _go_on(run, options.minutes, options.shards)
            )
        finally:
            lab.close()


def _go_on(run: Callable[..., Result], minutes: float, shards: int) -> int:
    first = seed = int.from_bytes(os.urandom(4), "big")
    _say(f"from seed {first} on, with {shards} shards" if shards > 1 else f"from seed {first} on")
    until, requests = time.monotonic() + 60 * minutes, 0
    while time.monotonic() < until:
        result = run(seed)
        requests += result.requests
        if result.finding:
            return _show(run, result)
        seed += 1
    _say(f"seeds {first} to {seed - 1}, {requests} requests: nothing found")
    return 0


def _replay(run: Callable[..., Result], seed: int) -> int:
    result = run(seed)
    _say(*result.history)
    return _show(run, result) if result.finding else 0


def _show(run: Callable[..., Result], result: Result) -> int:
    _say(report(shortened(partial(run, result.seed), result)))
    return 1


def _say(*lines: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


sys.exit(main())
