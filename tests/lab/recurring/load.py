"""``./tests/run recurring load``: thousands of rules that are due each minute.

Store and broker are two Redis servers. Scanner processes (``celery delayq scan``) write and deliver
the runs; one more process takes the messages off the broker, and notes when each came. First all
rules are due at the same moment, then spread over the minute by their jitter. At last nothing is
due: commands of each process, with so many rules and without any.
"""

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from threading import Event

import redis

from tests.lab.benchmarks.children import Child, cpu_seconds
from tests.lab.benchmarks.measures.idle import commands_sent
from tests.lab.benchmarks.stats import percentile
from tests.lab.recurring import load_app
from tests.lab.recurring.gauge import Gauge
from tests.lab.recurring.load_app import QUEUE, make_app
from tests.lab.recurring.shown import heading, rows
from tests.support.forked import PythonProcess
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker import ROOT

STARTED = r"scanner .* started"
NEW_YEAR = "0 0 1 1 *"
TAKEN, LOOK = 2_000, 0.01  # messages at once; seconds between two looks
SAMPLED = 0.5  # seconds between two looks at the rules that the writers have to look at


class Site:
    """A store, a broker, rules, and scanner processes."""

    def __init__(self, stack: contextlib.ExitStack):
        self.store, self.broker = (stack.enter_context(RedisServer()) for _ in range(2))
        self.conf = {"broker_url": self.broker.url(), "delayq_url": self.store.url()}
        self.app = make_app(self.conf)
        stack.callback(self.app.delayq.close)
        self.client = self.store.client()
        self.scanners: list[PythonProcess] = []
        self._stack = stack

    def set_rules(self, count: int, schedule: str, jitter: float = 0.0) -> float:
        """Set rules; return how many a second."""
        begun = time.monotonic()
        for number in range(count):
            signature = self.app.noop.s(number)
            self.app.delayq.every(f"rule-{number:05}", signature, schedule, jitter=jitter)
        return count / (time.monotonic() - begun)

    def start(self, count: int) -> None:
        env = {"RECURRING_CONF": json.dumps(self.conf)}
        for number in range(count):
            log = self.store.folder / f"scanner-{number}.log"
            arguments = ("-m", "celery", "-A", load_app.__name__, "delayq", "scan")
            scanner = PythonProcess(*arguments, log=log, env=env, cwd=ROOT)
            self._stack.callback(scanner.kill)
            self.scanners.append(scanner)
        for scanner in self.scanners:
            scanner.wait_log(STARTED, 60)

    def cpu(self) -> float:
        return sum(cpu_seconds(scanner.pid) for scanner in self.scanners)

    def used(self) -> int:
        return int(self.client.info("memory")["used_memory"])

    def to_look_at(self) -> int:
        """How many rules a writer has to look at by now."""
        key = self.app.delayq.services.scripts[0].keys["rules_next"]
        return int(self.client.zcount(key, "-inf", int(time.time() * 1000)))


def taker(pipe: Connection, path: str) -> None:
    """Take messages off the queue until the next word; report due and arrival of each, ms."""
    client = redis.Redis(unix_socket_path=path)
    client.ping()
    pipe.send("ready")
    taken: list[tuple[float, bytes]] = []
    while not pipe.poll(LOOK):
        while found := client.rpop(QUEUE, TAKEN):
            now = time.time() * 1000
            taken += ((now, message) for message in found)
    pipe.recv()
    pipe.send([(json.loads(message)["headers"]["delayq_due"], at) for at, message in taken])


def under_load(rules: int, minutes: int, processes: int, jitter: float) -> dict[str, str]:
    """Measure whole minutes of rules that are due in each of them."""
    with contextlib.ExitStack() as stack:
        site = Site(stack)
        site.app.delayq.counts()
        empty = site.used()
        set_a_second = site.set_rules(rules, "* * * * *", jitter)
        memory = (site.used() - empty) / rules
        again_a_second = site.set_rules(min(rules, 1000), "* * * * *", jitter)
        taking = stack.enter_context(Child(taker, site.broker.socket))
        site.start(processes)
        # The first minute is of those that fell due while the rules were set.
        begin = (time.time() // 60 + 2) * 60 - 1
        _wait_until(begin)
        gauge, other, cpu = Gauge(site.client), Gauge(site.broker.client()), site.cpu()
        sampled = list(_sampled(site, begin + 60 * minutes))
        load, broker, used = gauge.load(), other.load(), site.cpu() - cpu
        eventually(lambda: not site.broker.client().llen(QUEUE), 60)
        # A run with jitter may be due up to a minute after its slot, and is taken once it came.
        came = taking.ask("stop")
    first, last = begin * 1000, (begin + 60 * minutes) * 1000
    cleared = _cleared(sampled, begin + 1) if not jitter else "-"
    late = [at - due for due, at in came if first <= due < last]
    return {
        "rules set, a second": f"{set_a_second:,.0f}",
        "said again, a second": f"{again_a_second:,.0f}",
        "store's memory a rule, its next run included": f"{memory:,.0f} bytes",
        "runs due; delivered": f"{rules * minutes:,}; {len(late):,}",
        "due until delivered, p50": f"{percentile(late, 50):,.0f} ms",
        "p99": f"{percentile(late, 99):,.0f} ms",
        "latest": f"{max(late):,.0f} ms",
        "rules that wait for a writer, most": f"{max(count for _, count in sampled):,}",
        "seconds of each minute until none waits": cleared,
        "store": str(load),
        "broker": f"{100 * broker.cpu:.1f} % of a core",
        "scanner processes, together": f"{100 * used / load.seconds:.1f} % of a core",
        "load": f"{os.getloadavg()[1]:.1f}",
    }


def _sampled(site: Site, end: float) -> Iterator[tuple[float, int]]:
    while time.time() < end:
        yield time.time(), site.to_look_at()
        Event().wait(SAMPLED)


def _cleared(sampled: list[tuple[float, int]], begin: float) -> str:
    """How many seconds into each minute rules waited for a writer."""
    last: dict[int, float] = {}
    for when, count in sampled:
        minute = int((when - begin) // 60)
        if minute >= 0 and count:
            last[minute] = when - begin - 60 * minute
    return ", ".join(f"{seconds:.1f}" for seconds in last.values())


def at_rest(rules: int, minutes: float, processes: int) -> dict[str, str]:
    """Commands of each process while no rule is due."""
    with contextlib.ExitStack() as stack:
        site = Site(stack)
        site.set_rules(rules, NEW_YEAR)
        site.start(processes)
        Event().wait(5)
        gauge = Gauge(site.client)
        sent = commands_sent(site.store, 60 * minutes)
        return {
            "commands a minute, each process": f"{sent / minutes / processes:.1f}",
            "store": str(gauge.load()),
        }


def _wait_until(moment: float) -> None:
    Event().wait(max(0.0, moment - time.time()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=int, default=10_000, metavar="N", help="default: 10000")
    parser.add_argument("--minutes", type=int, default=5, metavar="N", help="default: 5, each")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="default: 2 scanners")
    parser.add_argument(
        "--jitter", type=float, action="append", metavar="S", help="0 and then 60 by default"
    )
    parser.add_argument(
        "--idle-minutes", type=float, default=2.0, metavar="N", help="default: 2; 0: not at all"
    )
    options = parser.parse_args()
    print(heading(f"{options.rules} rules, {options.processes} processes that scan"), flush=True)
    for jitter in options.jitter or (0.0, 60.0):
        found = under_load(options.rules, options.minutes, options.processes, jitter)
        _show(f"all due each minute, jitter {jitter:g}", found)
    for rules in (options.rules, 0) if options.idle_minutes else ():
        found = at_rest(rules, options.idle_minutes, options.processes)
        _show(f"at rest, {rules:,} rules", found)
    return 0


def _show(title: str, found: dict[str, str]) -> None:
    print(f"\n{rows((title, ''), found.items())}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
