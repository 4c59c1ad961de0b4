"""``./tests/run recurring kills``: workers are killed all the time; then the books of each slot.

Two real workers have rules of 2, 3 and 5 s, a crontab, and one of 3 s with a key. One of them is
killed again and again, and a new one starts at once. Each slot between the first and the last must
be one entry, delivered once, or be left out as the key was held.
"""

import argparse
import contextlib
import json
import os
import random
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from celery import Celery

from celery_delayq import DelayQ
from celery_delayq.core.store import What
from tests.lab.recurring import killed_app
from tests.lab.recurring.books import Evidence, Verdict, judge
from tests.lab.recurring.killed_app import ARRIVALS, INTERVALS, KEY, RUNS
from tests.lab.recurring.shown import heading, rows
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker import WorkerProcess

PATHS = {"direct": "broker and store are one Redis", "relay": "the broker is another Redis"}
BETWEEN = (1.0, 1.5)  # seconds between two kills, at least
AIMED = 0.5  # the share of kills that come with a slot, as all of them are at whole seconds
NEAR = (-0.01, 0.04)  # seconds between that and the kill
LOOK = 0.05  # seconds between two looks at the key
SETTLED = 60.0  # seconds until the last due runs are delivered, at most
WORKER = ("-P", "threads", "-c", "4", "-Q", "celery")
BAD_LINE = re.compile(r"Traceback|CRITICAL|ERROR")


class Site:
    """One path: its servers, two workers, and the evidence."""

    def __init__(self, path: str, stack: contextlib.ExitStack):
        self.store = stack.enter_context(RedisServer())
        is_direct = path == "direct"
        self.broker = self.store if is_direct else stack.enter_context(RedisServer())
        self.conf = {
            "broker_url": self.broker.url(),
            "broker_connection_retry_on_startup": True,
            "delayq_url": None if is_direct else self.store.url(),
            "delayq_history": 10_000,
            "delayq_lease": 2.0,
            "delayq_safety_interval": 1.0,
            "worker_hijack_root_logger": True,
        }
        self.app = Celery("recurring", set_as_current=False)
        self.app.conf.update(self.conf)
        for name in INTERVALS:
            self.app.task(_known, name=name, shared=False)  # the history names tasks that it knows
        self.delayq = DelayQ(self.app)
        stack.callback(self.delayq.close)
        self.client = self.store.client()
        self.bad: list[str] = []
        self._events: dict[tuple[object, ...], Any] = {}
        self._held: list[int] = []
        self._started = 0
        self._workers = [self._start(), self._start()]
        stack.callback(self._end)
        self._over = threading.Event()
        self._watching = threading.Thread(target=self._watch, daemon=True)

    def _start(self) -> WorkerProcess:
        self._started += 1
        env = {"RECURRING_CONF": json.dumps(self.conf), "RECURRING_NOTES": self.store.url(2)}
        log = self.store.folder / f"worker-{self._started}.log"
        return WorkerProcess(killed_app.__name__, *WORKER, log=log, env=env)

    def _end(self) -> None:
        self._over.set()
        for worker in self._workers:
            worker.kill()

    def wait_up(self) -> int:
        """Wait until both work and all rules are set; return the time, ms."""
        for worker in self._workers:
            worker.wait_ready(90)
        eventually(lambda: {rule.name for rule in self.delayq.rules()} == {*INTERVALS})
        self._watching.start()
        return self.now()

    def now(self) -> int:
        return self.delayq.counts().now_ms

    def _watch(self) -> None:
        look = 0
        while not self._over.wait(LOOK):
            if self.delayq.holder(key=KEY) is not None:
                self._held.append(self.now())
            look += 1
            if look % 200 == 0:
                self.collect()

    def collect(self) -> None:
        """Keep the events of the history, before it forgets them."""
        for event in self.delayq.history():
            self._events.setdefault((event.what, event.id, event.when), event)

    def kill(self, order: random.Random) -> None:
        """Kill one of the workers; a new one starts at once."""
        place = order.randrange(len(self._workers))
        victim = self._workers[place]
        victim.kill()
        self.bad += [line for line in victim.lines if BAD_LINE.search(line)]
        self._workers[place] = self._start()

    def settle(self, end: int) -> None:
        """Wait until the runs that were due by then are delivered, and those of the key ended."""
        for worker in self._workers:
            worker.wait_ready(90)

        def is_done() -> bool:
            counts = self.delayq.counts()
            due = counts.next_due_ms
            return not counts.in_flight and (due is None or due > max(end, counts.now_ms - 1000))

        eventually(is_done, SETTLED)
        self._over.set()
        self._watching.join()
        self.collect()
        for worker in self._workers:
            self.bad += [line for line in worker.lines if BAD_LINE.search(line)]

    def books(self, begin: int, end: int) -> dict[str, Evidence]:
        """The evidence of each rule, for slots after *begin* and up to *end*."""
        seen = {}
        for name, seconds in INTERVALS.items():
            step = seconds * 1000
            first = (begin // step + 1) * step
            seen[name] = Evidence([*range(first, end + 1, step)])
        seen[KEY].held = self._held
        names = {}
        for event in self._events.values():
            if event.what is What.SCHEDULED:
                names[event.id] = event.task
                times = (_ms(event.due), _ms(event.when))
                seen[event.task].written.append((event.id, *times))
        for event in self._events.values():
            if event.what is What.HANDED_OVER:
                seen[names[event.id]].delivered.append(event.id)
        for run, is_marked in self._copies():
            seen[names[run]].copies.append((run, is_marked))
        return seen

    def _copies(self) -> Iterator[tuple[str, bool]]:
        for message in self.broker.client().lrange(ARRIVALS, 0, -1):
            headers = json.loads(message)["headers"]
            yield headers["id"], bool(headers.get("delayq_redelivered"))
        for line in self.store.client(db=2).lrange(RUNS, 0, -1):
            run, is_marked = json.loads(line)
            yield run, is_marked

    def latest(self) -> float:
        """By how many seconds the latest delivery was late."""
        due = {
            event.id: event.due for event in self._events.values() if event.what is What.SCHEDULED
        }
        return max(
            (event.when - due[event.id]).total_seconds()
            for event in self._events.values()
            if event.what is What.HANDED_OVER
        )


def _known() -> None:
    """Stand for a task of the workers."""


def _ms(moment: Any) -> int:
    return round(moment.timestamp() * 1000)


def trial(path: str, kills: int, seed: str) -> tuple[Mapping[str, Verdict], list[str]]:
    """Kill workers on one path; return the verdict of each rule, and lines of what else is odd."""
    order = random.Random(f"{seed} {path}")
    with contextlib.ExitStack() as stack:
        site = Site(path, stack)
        begin, started = site.wait_up(), time.monotonic()
        pause = threading.Event()
        for number in range(1, kills + 1):
            pause.wait(_until_next(order))
            site.kill(order)
            if number % 50 == 0:
                print(f"  {number} kills, {time.monotonic() - started:.0f} s", flush=True)
        end = site.now()
        site.settle(end)
        verdicts = {name: judge(seen) for name, seen in site.books(begin, end).items()}
        odd = [str(one) for one in site.delayq.check()]
        odd += [f"rule {rule.name} has changed" for rule in site.delayq.rules() if rule.is_paused]
        print(f"  the latest delivery came {site.latest():.1f} s after its due time")
        print(f"  {len(site.bad)} bad lines in the logs of workers", *site.bad[:5], sep="\n    ")
        return verdicts, odd


def _until_next(order: random.Random) -> float:
    """Return the seconds until the next kill."""
    seconds = order.uniform(*BETWEEN)
    if order.random() >= AIMED:
        return seconds
    return seconds + 1 - (time.time() + seconds) % 1 + order.uniform(*NEAR)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300, metavar="N", help="default: 300, a path")
    parser.add_argument("--seed", default=str(time.time_ns()), metavar="S")
    parser.add_argument("--path", choices=PATHS, action="append", help="both by default")
    options = parser.parse_args()
    print(heading(f"seed {options.seed}"))
    is_sound = True
    for path in options.path or PATHS:
        print(f"\n{path}: {PATHS[path]}; {options.kills} kills", flush=True)
        verdicts, odd = trial(path, options.kills, options.seed)
        print(f"  load {os.getloadavg()[1]:.1f}", table(verdicts), *odd, sep="\n", flush=True)
        is_sound = is_sound and not odd and all(one.is_sound for one in verdicts.values())
    print(f"\n{'nothing differs' if is_sound else 'THERE ARE DIFFERENCES'}")
    return 0 if is_sound else 1


def table(verdicts: Mapping[str, Verdict]) -> str:
    head = ("rule", "slots", "once", "key held", "behind a late one", "lost", "doubled")
    head += ("undelivered", "twice unmarked", "marked copies")
    return rows(
        head,
        [
            (
                name,
                *(one.slots, one.once, one.excused, one.behind, len(one.lost), len(one.doubled)),
                *(len(one.undelivered), len(one.twice), one.marked),
            )
            for name, one in verdicts.items()
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
