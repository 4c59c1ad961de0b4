"""``./tests/run soak``: callers work while one fault follows another; then the books are checked.

Each path has its share of the time. The seed chooses the calls and the order of the faults; it does
not control the processes in between.
"""

import argparse
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.lab.faults.injected import ALWAYS, FAULTS, Fault, kill_broker, kill_store, stop_broker
from tests.lab.faults.site import PATHS, TO_RABBIT, Outcome, Site
from tests.support.rabbit_server import RabbitServer

QUIET = (0.0, 2.0)  # seconds between two faults; the first may still be felt
PAUSED = 0.3  # the share of the times between two faults
KILLED = 0.5  # the share of faults during which the adopting worker is killed
MINUTES = 10.0


def soak(
    path: str,
    seconds: float,
    seed: str,
    *,
    rabbit: RabbitServer | None = None,
    say: Callable[[str], object] = print,
) -> Outcome:
    """Let callers work on one path for a while.

    Args:
        path: One of `PATHS`.
        seconds: How long faults come. The start, and the last due tasks, take some more.
        seed: For the calls and the faults.
        rabbit: A RabbitMQ that others use as well, so it is not killed; by default one of its own.
        say: Called with each fault.
    """
    order = random.Random(f"{seed} {path}")
    began = time.monotonic()
    adopts = path == TO_RABBIT
    with Site(path, seed, rabbit=rabbit, config=ALWAYS, strangers=adopts) as site:
        until = time.monotonic() + seconds
        for fault in _faults(path, order, spared=rabbit is not None):
            site.pause(order.uniform(*QUIET))
            if time.monotonic() > until:
                break
            say(f"{time.monotonic() - began:6.1f} s  {fault.name}")
            with _worker_killed(site, order):
                fault.inject(site)
            if order.random() < PAUSED:
                _hold_up(site, order)
        return site.finish()


@contextmanager
def _worker_killed(site: Site, order: random.Random) -> Iterator[None]:
    """Sometimes kill the adopting worker during another fault."""
    seconds, is_killed = order.uniform(*QUIET), order.random() < KILLED
    if not (site.strangers and is_killed):
        yield
        return
    killing = threading.Timer(seconds, site.strangers.kill_worker)
    killing.start()
    yield
    killing.join()


def _hold_up(site: Site, order: random.Random) -> None:
    """Pause the queue for a moment; tasks that fell due come back at once, or one by one."""
    site.delayq.pause(queue=site.queue)
    site.pause(order.uniform(*QUIET))
    site.delayq.resume(queue=site.queue, rate=order.choice((None, 200)))


def _faults(path: str, order: random.Random, *, spared: bool) -> Iterator[Fault]:
    """Faults in random order, for ever; each comes once before any comes again."""
    some = [one for one in FAULTS if path in one.paths and not one.workers]
    # The store syncs always; else its own losses would look like losses of the package.
    some = [one for one in some if one.inject is not kill_store or one.config == ALWAYS]
    if spared and path == TO_RABBIT:
        some = [one for one in some if one.inject not in (kill_broker, stop_broker)]
    while True:
        yield from order.sample(some, len(some))


def books(outcome: Outcome) -> str:
    verdict = outcome.verdict
    return (
        f"{verdict.scheduled} scheduled = {verdict.handed_over} handed over + {verdict.cancelled} "
        f"cancelled + {verdict.dead} dead + {verdict.waiting} waiting"
        f"{f' + {verdict.missing} MISSING' * bool(verdict.missing)}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="./tests/run soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES, metavar="N", help="default: 10")
    parser.add_argument("--seed", default=str(time.time_ns()), metavar="S")
    parser.add_argument("--path", choices=PATHS, action="append", help="all three by default")
    options = parser.parse_args()
    # By default SIGTERM skips every clean-up; so it becomes an orderly end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    paths = options.path or PATHS
    print(f"seed {options.seed}")
    sound = True
    for path in paths:
        print(f"\n{path}", flush=True)
        outcome = soak(path, options.minutes * 60 / len(paths), options.seed)
        print(books(outcome), *outcome.differences, sep="\n", flush=True)
        sound = sound and not outcome.differences
    print(f"\n{'nothing differs' if sound else 'THERE ARE DIFFERENCES'}; seed {options.seed}")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
