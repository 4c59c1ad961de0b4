"""``./tests/run deploys rollout``: new code goes out over thousands of waiting tasks, and back.

The new code renames one task, changes the arguments of another, and has a third no more. Plain
Celery and celery_delayq do it at the same time, on one RabbitMQ, each with callers at work and with
workers that are killed. On the side of celery_delayq the steps of `operate/deploys.md` are taken;
plain Celery has none. Each order has to run, with arguments that its code takes.
"""

import argparse
import contextlib
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from threading import Event

from tests.lab.deploys import rollout_app
from tests.lab.deploys.rollout_app import DELAYED, NEW, OLD, PLAIN, RENAMED
from tests.lab.recurring.shown import heading, rows
from tests.support.forked import PythonProcess
from tests.support.rabbit_server import RabbitServer
from tests.support.redis_server import RedisServer
from tests.support.worker import ROOT, WorkerProcess

MODULE = rollout_app.__name__
SIDES = (PLAIN, DELAYED)
WORKERS = 2  # of a side
LOAD = 20  # calls a second of each side, beside those that wait
DISCARDED, FAILED = "unregistered task of type", "raised unexpected: TypeError"
REST = 240.0  # seconds that the last ones may take
_BACK = {new: old for old, new in RENAMED.items()}


class Site:
    """A RabbitMQ, a Redis, and the processes of both sides on them."""

    def __init__(self, stack: contextlib.ExitStack):
        self._stack = stack
        self.redis = stack.enter_context(RedisServer())
        self.rabbit = stack.enter_context(RabbitServer())
        self._logs = Counter[str]()
        self.workers: dict[str, list[WorkerProcess]] = {side: [] for side in SIDES}

    def worker(self, side: str, code: str) -> WorkerProcess:
        options = ("-P", "prefork", "-c", "2")
        log = self._log(f"worker-{side}")
        made = WorkerProcess(MODULE, *options, log=log, env=self._env(side, code))
        self._stack.callback(made.kill)
        return made

    def start(self, side: str, code: str) -> None:
        self.workers[side] = [self.worker(side, code) for _ in range(WORKERS)]
        for one in self.workers[side]:
            one.wait_ready(90)

    def stop(self, side: str) -> None:
        for one in self.workers[side]:
            one.stop()

    def kill(self, side: str, code: str) -> None:
        """Kill the first worker of a side, and start another one."""
        self.workers[side][0].kill()
        self.workers[side][0] = self.worker(side, code).wait_ready(90)

    def calls(self, side: str, code: str, *numbers: float) -> PythonProcess:
        words = ("-m", MODULE, *map(str, numbers))
        made = PythonProcess(
            *words, log=self._log(f"calls-{side}"), env=self._env(side, code), cwd=ROOT
        )
        self._stack.callback(made.kill)
        return made

    def command(self, code: str, *words: str) -> list[str]:
        print(f"  delayq {' '.join(words)}", flush=True)
        made = self.begin(code, *words)
        made.wait(180)
        lines = [line for line in made.lines if line.strip() and "  ->" not in line]
        print("\n".join(f"    {line}" for line in lines[-4:]), flush=True)
        return lines

    def edit(self, code: str, *words: str) -> None:
        """Edit tasks, until none is left that was being published meanwhile."""
        for _ in range(5):
            if not any("try again" in line for line in self.command(code, "edit", *words, "--yes")):
                break
            Event().wait(2)

    def begin(self, code: str, *words: str) -> PythonProcess:
        arguments = ("-m", "celery", "-A", MODULE, "delayq", *words)
        log, env = self._log("command"), self._env(DELAYED, code)
        made = PythonProcess(*arguments, log=log, env=env, cwd=ROOT)
        self._stack.callback(made.kill)
        return made

    def runs(self, side: str) -> list[list[str]]:
        return [line.decode().split(" ") for line in self.redis.client().lrange(side, 0, -1)]

    def said(self, side: str, what: str) -> int:
        """How often the workers of a side have said something."""
        logs = Path(self.redis.folder).glob(f"worker-{side}-*.log")
        return sum(
            len(re.findall(re.escape(what), log.read_text(errors="replace"))) for log in logs
        )

    def _env(self, side: str, code: str) -> dict[str, str]:
        places = {"SHOP_BROKER": self.rabbit.url, "SHOP_STORE": self.redis.url()}
        return {"SHOP_SIDE": side, "SHOP_CODE": code, **places}

    def _log(self, name: str) -> Path:
        self._logs[name] += 1
        return Path(self.redis.folder) / f"{name}-{self._logs[name]}.log"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, metavar="N", help="default: 10,000")
    options = parser.parse_args()
    print(heading("RabbitMQ"), flush=True)
    with contextlib.ExitStack() as stack:
        site = Site(stack)
        for side in SIDES:
            site.start(side, OLD)
        print(f"{_now()} {options.count} orders wait on each side, with the old code", flush=True)
        pause = max(60.0, options.count / 60)  # seconds over which they are due
        filled = [site.calls(side, OLD, 0, options.count, 45, pause, 0) for side in SIDES]
        load = [site.calls(side, OLD, options.count, 40 * LOAD, 5, 60, LOAD) for side in SIDES]
        for one in filled:
            one.wait(180)
        _roll_out(site, load)
        first = options.count + 40 * LOAD
        load = [site.calls(side, NEW, first, 20 * LOAD, 5, 60, LOAD) for side in SIDES]
        Event().wait(10)
        _kill(site, NEW)
        _roll_back(site, load)
        _kill(site, OLD)
        return _told(site, range(first + 20 * LOAD))


def _roll_out(site: Site, load: Sequence[PythonProcess]) -> None:
    print(f"{_now()} the new code is rolled out", flush=True)
    site.command(NEW, "preflight")
    site.command(NEW, "pause", "--task", "shop.charge")
    Event().wait(3)  # the workers end what they have of it
    _replace(site, NEW, load)
    # A kill in the midst, and once more.
    words = ("--task", "shop.charge", "--with", f"{MODULE}:priced")
    killed = site.begin(NEW, "edit", *words, "--yes")
    Event().wait(1.5)
    killed.kill()
    site.edit(NEW, *words)
    site.command(NEW, "resume", "--task", "shop.charge")
    _rename(site, NEW, RENAMED)


def _roll_back(site: Site, load: Sequence[PythonProcess]) -> None:
    print(f"{_now()} the old code comes back", flush=True)
    site.command(OLD, "pause", "--task", "shop.charge")
    Event().wait(3)
    _replace(site, OLD, load)
    unpriced = ("--with", f"{MODULE}:unpriced")
    site.edit(OLD, "--task", "shop.charge", *unpriced)
    site.command(OLD, "resume", "--task", "shop.charge")
    _rename(site, OLD, _BACK)
    site.command(OLD, "run-now", "--state", "unknown", "--yes")


def _rename(site: Site, code: str, names: dict[str, str]) -> None:
    """Give tasks their new names, until none has an old one: some were on their way to a worker."""
    [(old, new)] = names.items()
    for _ in range(10):
        site.edit(code, "--all", "--to-task", f"{old}={new}")
        if not any(old in line for line in site.command(code, "preflight")):
            break
        Event().wait(10)


def _replace(site: Site, code: str, load: Sequence[PythonProcess]) -> None:
    """Replace the workers of both sides, and then the callers, who go on a while as they were."""
    for side in SIDES:
        site.stop(side)
        site.start(side, code)
    for one in load:
        one.wait(180)
    print(f"{_now()} all workers have the {code} code", flush=True)


def _kill(site: Site, code: str) -> None:
    for side in SIDES:
        site.kill(side, code)
    print(f"{_now()} a worker of each side was killed, and started again", flush=True)


def _told(site: Site, orders: range) -> int:
    """Print a table once nothing comes any more; return 1 if the side of the package lost one."""
    until, seen = time.monotonic() + REST, -1
    while time.monotonic() < until:
        now = [len({order for order, *_ in site.runs(side)}) for side in SIDES]
        if now[1] == len(orders) and sum(now) == seen:
            break
        seen = sum(now)
        Event().wait(10)
    body, lost = [], 0
    for side in SIDES:
        runs = site.runs(side)
        times = Counter(int(order) for order, *_ in runs)
        never = len(orders) - len(times)
        wrong = sum(bool(facts) is not (code == NEW and _is_charge(int(order)))
                    for order, code, *facts in runs)  # fmt: skip
        body.append((
            side, len(orders), never, site.said(side, DISCARDED), site.said(side, FAILED),
            sum(times.values()) - len(times), wrong,
        ))  # fmt: skip
        lost = never + wrong if side == DELAYED else lost
    print(
        rows(
            (
                "side",
                "orders",
                "never ran",
                "said: unregistered",
                "TypeErrors",
                "runs again after a kill",
                "wrong arguments",
            ),
            body,
        )
    )
    return int(lost > 0)


def _is_charge(order: int) -> bool:
    return rollout_app.KINDS[order % len(rollout_app.KINDS)] == "charge"


def _now() -> str:
    return time.strftime("%H:%M:%S", time.gmtime())


if __name__ == "__main__":
    sys.exit(main())
