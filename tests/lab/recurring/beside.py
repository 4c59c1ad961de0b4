"""``./tests/run recurring beside``: this package, celery beat and celery-redbeat, side by side.

Each way has a worker of its own, and one process that schedules: ``celery delayq scan``, ``celery
beat``, or that with RedBeat. All have a crontab of each minute and an interval of five seconds.
The scheduling processes get the same faults at the same times: kill -9 and a start at once; a stop
of two minutes; and a deploy, with the old and the new one alive for twenty seconds.
"""

import argparse
import contextlib
import os
import sys
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from threading import Event

from tests.lab.recurring import beside_app
from tests.lab.recurring.beside_app import BEAT, DELAYQ, NOTES, REDBEAT, TUNED
from tests.lab.recurring.shown import heading, rows
from tests.lab.recurring.tally import Run, tally
from tests.support.forked import PythonProcess
from tests.support.process import ProcessEndedError
from tests.support.redis_server import RedisServer
from tests.support.worker import ROOT, WorkerProcess

MODULE = beside_app.__name__
SECONDS = {"minute": 60, "five": 5}
WAYS = (DELAYQ, BEAT, REDBEAT, TUNED)
STARTED = {DELAYQ: r"scanner .* started", BEAT: r"beat: Starting"}
KILL, STOP, DEPLOY = 0.15, 0.35, 0.75  # when each fault comes, as a share of the time
STOPPED, TOGETHER = 120.0, 20.0  # seconds
CAUGHT_UP = 4.0  # seconds after a start in which a way catches up


@dataclass
class Side:
    """One way: its worker, its scheduling process, and its database of the Redis."""

    way: str
    db: int
    server: RedisServer
    stack: contextlib.ExitStack
    started: int = 0
    processes: list[PythonProcess] = field(default_factory=list)

    def __post_init__(self):
        self.env = {"RECURRING_WAY": self.way, "RECURRING_BROKER": self.server.url(self.db)}
        options = ("-P", "threads", "-c", "4", *(["--no-delayq"] if self.way == DELAYQ else []))
        log = self.server.folder / f"{self.db}-worker.log"
        self.worker = WorkerProcess(MODULE, *options, log=log, env=self.env)
        self.stack.callback(self.worker.kill)

    def start(self, *, fresh: bool = False) -> None:
        """Start a scheduling process; a *fresh* one has the files of no other one."""
        self.started += 1
        scheduled = self.server.folder / f"{self.db}-{self.started if fresh else 1}.schedule"
        command = ("delayq", "scan", "-l", "INFO")
        if self.way != DELAYQ:
            command = ("beat", "-l", "INFO", "--pidfile", "", "-s", str(scheduled))
        if self.way in (REDBEAT, TUNED):
            command = (*command[:-2], "-S", "redbeat.RedBeatScheduler")
        log = self.server.folder / f"{self.db}-scheduler-{self.started}.log"
        arguments = ("-m", "celery", "-A", MODULE, *command)
        process = PythonProcess(*arguments, log=log, env=self.env, cwd=ROOT)
        self.stack.callback(process.kill)
        self.processes.append(process)
        process.wait_log(STARTED[DELAYQ if self.way == DELAYQ else BEAT], 60)

    def stop(self, place: int) -> None:
        """End one of its scheduling processes in order; kill it if it does not end."""
        try:
            self.processes[place].stop()
        except ProcessEndedError:
            print(f"{self.way}: a scheduling process did not end by SIGTERM, and was killed")

    def runs(self, name: str) -> list[Run]:
        lines = self.server.client(db=self.db).lrange(NOTES, 0, -1)
        found = [line.decode().split(" ") for line in lines]
        return [
            (float(when), int(due) / 1000 if due else None)
            for task, when, due in found
            if task == name
        ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, metavar="N", help="default: 10")
    options = parser.parse_args()
    print(heading(f"celery-redbeat {version('celery-redbeat')}"), flush=True)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(RedisServer())
        sides = [Side(way, db, server, stack) for db, way in enumerate(WAYS)]
        for side in sides:
            side.worker.wait_ready(90)
        times = _run(sides, options.minutes * 60)
        print(_table(sides, times), f"\nload {os.getloadavg()[2]:.1f}", sep="\n")
        for side in sides:
            _show_trouble(side)
    return 0


def _run(sides: list[Side], seconds: float) -> dict[str, float]:
    """Run and disturb all ways; return when the phases began, Unix seconds."""
    begun, pause = time.monotonic(), Event()

    def wait_until(share: float, then: float = 0.0) -> None:
        pause.wait(max(0.0, begun + share * seconds + then - time.monotonic()))

    for side in sides:
        side.start()
    times = {"begin": time.time()}
    wait_until(KILL)
    times["kill"] = _said("kill -9, and a start at once")
    for side in sides:
        side.processes[-1].kill()
        side.start()
    wait_until(STOP)
    times["stop"] = _said("a stop of two minutes")
    for side in sides:
        side.stop(-1)
    wait_until(STOP, STOPPED)
    times["back"] = _said("a start")
    for side in sides:
        side.start()
    wait_until(DEPLOY)
    times["deploy"] = _said("a deploy: the new one starts")
    for side in sides:
        side.start(fresh=True)
    wait_until(DEPLOY, TOGETHER)
    _said("the old one stops")
    for side in sides:
        side.stop(-2)
    wait_until(1)
    times["end"] = _said("the end")
    return times


def _said(what: str) -> float:
    now = time.time()
    print(f"{time.strftime('%H:%M:%S', time.gmtime(now))} {what}", flush=True)
    return now


def _table(sides: list[Side], times: dict[str, float]) -> str:
    head = ("way", "schedule", "slots", "once", "lost", "doubled", "late")
    head += ("lost or doubled: by the kill", "by the stop", "by the deploy", "came after the stop")
    body = []
    for side in sides:
        for name, seconds in SECONDS.items():
            runs = side.runs(name)
            whole = tally(runs, seconds, times["begin"] + 1, times["end"] - 5)
            back = sum(times["back"] < when < times["back"] + CAUGHT_UP for when, _ in runs)
            phases = [("kill", "stop"), ("stop", "deploy"), ("deploy", "end")]
            # The slot before a fault may be what it doubles.
            parts = [
                tally(runs, seconds, times[first] - seconds, times[last] - seconds)
                for first, last in phases
            ]
            late = "-" if whole.late is None else whole.late
            figures = (whole.slots, whole.once, whole.lost, whole.doubled, late)
            by = (f"{part.lost}, {part.doubled}" for part in parts)
            body.append((side.way, name, *figures, *by, back))
    return rows(head, body)


def _show_trouble(side: Side) -> None:
    for process in side.processes:
        bad = [line for line in process.lines if "ERROR" in line or "CRITICAL" in line]
        if bad:
            print(f"{side.way}: {len(bad)} bad lines, such as: {bad[0][:200]}")


if __name__ == "__main__":
    sys.exit(main())
