"""``./tests/run recurring clocks``: a replica takes over whose clock is an hour ahead, or behind.

Rules of a second are written by a worker, or by ``celery delayq scan``, into a Sentinel group. Its
master is killed, and later the new one, so that the first clock counts again. Each run notes itself
on a Redis of its own. The wrong clock comes from a small library, so a C compiler is needed.
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Event

from celery import Celery

from celery_delayq import DelayQ
from tests.lab.recurring import clocks_app
from tests.lab.recurring.clocks_app import MISSED, NOTES
from tests.lab.recurring.shown import heading, rows
from tests.sentinel.faults import kill
from tests.support.forked import PythonProcess
from tests.support.redis_server import RedisServer
from tests.support.sentinels import Node, SentinelGroup
from tests.support.worker import ROOT, WorkerProcess

MODULE = clocks_app.__name__
HOUR = 3600  # seconds
WRONG = {"an hour ahead": HOUR, "an hour behind": -HOUR}
# A keyed rule lets its writer look each second, so it has trials of its own.
TRIALS = [("worker", ("one", "all")), ("scan", ("one", "all")), ("worker", ("keyed",))]
LOOK = 30.0  # seconds: a writer looks at least once
BAD_LINE = re.compile(r"Traceback|CRITICAL|ERROR")
# libfaketime does not work with the allocator of Redis, which asks for the time before it is ready.
CLOCK = r"""
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t which, struct timespec *now) {
    int answer = syscall(SYS_clock_gettime, which, now);
    if (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE) now->tv_sec += WRONG;
    return answer;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    int answer = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec, now->tv_usec = exact.tv_nsec / 1000;
    return answer;
}

time_t time(time_t *kept) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (kept) *kept = exact.tv_sec;
    return exact.tv_sec;
}
"""


class WronglyTimed(SentinelGroup):
    """A group whose replica has a clock that is wrong by so many seconds."""

    def __init__(self, wrong: int, folder: Path):
        source, self._library = folder / "clock.c", folder / "clock.so"
        source.write_text(CLOCK)
        made = ("cc", "-shared", "-fPIC", f"-DWRONG=({wrong})", "-o", self._library, source)
        subprocess.run(made, check=True)
        super().__init__(replicas=1)

    def _node(self, **options: object) -> Node:
        node = super()._node(**options)
        if options.get("of"):
            command = node._command
            node._command = lambda: ["env", f"LD_PRELOAD={self._library}", *command()]
        return node


@dataclass
class Figures:
    """What came of one trial, by rule."""

    silent: dict[str, list[float]]  # seconds, in each phase, the time of the failover included
    runs: dict[str, list[int]]  # in each phase
    twice: dict[str, int]  # slots that ran twice, without a mark
    bad: list[str]


def trial(writer: str, names: tuple[str, ...], wrong: int, seconds: float) -> Figures:
    """Let the master fail twice, so many seconds apart, while the writer writes these rules."""
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(RedisServer())
        group = stack.enter_context(WronglyTimed(wrong, broker.folder))
        conf = {
            "broker_url": broker.url(),
            "broker_connection_retry_on_startup": True,
            "delayq_url": group.url(),
            "delayq_transport_options": group.options,
            "delayq_history": 10_000,
            "task_ignore_result": True,
            "worker_hijack_root_logger": True,
        }
        env = {"RECURRING_CONF": json.dumps(conf), "RECURRING_NOTES": broker.url(1)}
        options = ["-P", "prefork", "-c", "2", *(["--no-delayq"] if writer == "scan" else [])]
        log = broker.folder / "worker.log"
        processes = [WorkerProcess(MODULE, *options, log=log, env=env).wait_ready(90)]
        if writer == "scan":
            command = ("-m", "celery", "-A", MODULE, "delayq", "scan", "-l", "INFO")
            log = broker.folder / "scan.log"
            processes.append(PythonProcess(*command, log=log, env=env, cwd=ROOT))
        for process in processes:
            stack.callback(process.kill)
        app = Celery("caller", set_as_current=False)
        app.conf.update(conf)
        delayq = DelayQ(app)
        stack.callback(delayq.close)
        for name in names:
            key = {"delayq_key": name} if name == "keyed" else {}
            delayq.every(name, app.signature(name).set(**key), 1, missed=MISSED[name])
        marks, pause = [time.time()], Event()
        pause.wait(seconds / 3)
        for _ in range(2):
            marks.append(time.time())
            kill(group)
            pause.wait(seconds)
            group.heal()
        marks.append(time.time())
        lines = [json.loads(line) for line in broker.client(db=1).lrange(NOTES, 0, -1)]
        bad = [line for each in processes for line in each.lines if BAD_LINE.search(line)]
        return Figures(*_figures(names, lines, marks), bad)


def _figures(
    names: tuple[str, ...], lines: list[dict], marks: list[float]
) -> tuple[dict, dict, dict]:
    silent, runs, twice = {}, {}, {}
    for name in names:
        mine = [line for line in lines if line["rule"] == name]
        times = sorted(line["at"] for line in mine)
        phases = [*pairwise(marks)]
        silent[name] = [
            max(b - a for a, b in pairwise([begin, *(t for t in times if begin < t < end), end]))
            for begin, end in phases
        ]
        runs[name] = [sum(begin < t < end for t in times) for begin, end in phases]
        slots = Counter(line["due"] for line in mine if not line["mark"])
        twice[name] = sum(count > 1 for count in slots.values())
    return silent, runs, twice


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=75.0, metavar="N", help="of each phase")
    options = parser.parse_args()
    print(heading(), flush=True)
    trials = [(*one, clock) for one in TRIALS for clock in WRONG]
    with ThreadPoolExecutor(len(trials)) as threads:
        found = [
            threads.submit(trial, writer, names, WRONG[clock], options.seconds)
            for writer, names, clock in trials
        ]
        figures = [one.result() for one in found]
    head = ("writer", "the replica's clock", "rule", "runs before", "silent, s")
    head += ("runs by its clock", "silent, s", "runs by the first clock", "silent, s", "twice")
    body, is_sound = [], True
    for (writer, names, clock), one in zip(trials, figures, strict=True):
        for name in names:
            pairs = zip(one.runs[name], one.silent[name], strict=True)
            cells = [cell for count, gap in pairs for cell in (count, f"{gap:.1f}")]
            body.append((writer, clock, name, *cells, one.twice[name]))
            is_sound = is_sound and max(one.silent[name][1:]) < LOOK + 10
        print(f"{writer}, {clock}: {len(one.bad)} bad lines", *one.bad[:5], sep="\n  ")
    print(rows(head, body), f"load {os.getloadavg()[1]:.1f}", sep="\n")
    return 0 if is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
