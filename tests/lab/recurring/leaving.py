"""``./tests/run recurring leaving``: the steps of ``coming-from/leaving.md``, one after the other.

Two workers have rules of `beat_schedule`, a RabbitMQ and a store; a few hundred tasks wait. Then
beat is started, the workers are replaced, the rules are removed, the tasks are released, and all
processes are replaced by some without the package. Each slot has to run once.
"""

import argparse
import contextlib
import sys
import time
from itertools import pairwise
from threading import Event

from tests.lab.recurring import leaving_app
from tests.lab.recurring.leaving_app import LEAVING, NOTES, PLAIN, RULES, SECONDS, WAITING
from tests.lab.recurring.shown import heading, rows
from tests.support.forked import PythonProcess
from tests.support.rabbit_server import RabbitServer
from tests.support.redis_server import RedisServer
from tests.support.worker import ROOT, WorkerProcess

MODULE = leaving_app.__name__
PHASE = 40.0  # seconds, with `--minutes 4`


class Site:
    """A RabbitMQ, a Redis, and the processes of the app on them."""

    def __init__(self, stack: contextlib.ExitStack):
        self._stack = stack
        self.redis = stack.enter_context(RedisServer())
        self.rabbit = stack.enter_context(RabbitServer())
        self._started = 0

    def _env(self, stage: str) -> dict[str, str]:
        places = {"LEAVING_BROKER": self.rabbit.url, "LEAVING_STORE": self.redis.url()}
        return {"LEAVING_STAGE": stage, **places}

    def _log(self) -> object:
        self._started += 1
        return self.redis.folder / f"process-{self._started}.log"

    def worker(self, stage: str) -> WorkerProcess:
        options = ("-P", "threads", "-c", "4")
        made = WorkerProcess(MODULE, *options, log=self._log(), env=self._env(stage))
        self._stack.callback(made.kill)
        return made.wait_ready(60)

    def beat(self, stage: str) -> PythonProcess:
        file = self.redis.folder / "beat.schedule"
        made = self._process(stage, "beat", "-l", "INFO", "--pidfile", "", "-s", str(file))
        made.wait_log(r"beat: Starting", 60)
        return made

    def command(self, stage: str, *words: str) -> None:
        print(f"  delayq {' '.join(words)}", flush=True)
        made = self._process(stage, "delayq", *words)
        made.wait(120)
        print("\n".join(f"    {line}" for line in made.lines[-6:]), flush=True)

    def _process(self, stage: str, *words: str) -> PythonProcess:
        arguments = ("-m", "celery", "-A", MODULE, *words)
        made = PythonProcess(*arguments, log=self._log(), env=self._env(stage), cwd=ROOT)
        self._stack.callback(made.kill)
        return made

    def schedule(self) -> None:
        made = PythonProcess("-m", MODULE, log=self._log(), env=self._env(RULES), cwd=ROOT)
        self._stack.callback(made.kill)
        made.wait(60)

    def runs(self, name: str) -> list[float]:
        found = [line.decode().split(" ") for line in self.redis.client().lrange(NOTES, 0, -1)]
        return sorted(float(when) for task, when in found if task == name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=4.0, metavar="N", help="default: 4")
    options = parser.parse_args()
    phase, pause = PHASE * options.minutes / 4, Event()
    print(heading("RabbitMQ"), flush=True)
    with contextlib.ExitStack() as stack:
        site = Site(stack)
        workers = [site.worker(RULES) for _ in range(2)]
        site.schedule()
        begin = time.time()
        pause.wait(phase)
        said("beat starts, with the guard")
        beat = site.beat(LEAVING)
        pause.wait(phase)
        said("the workers are replaced by some without delayq_beat")
        for place in range(2):
            fresh = site.worker(LEAVING)
            workers[place].stop()
            workers[place] = fresh
        pause.wait(phase)
        said("the rules are removed; before that no release is made")
        site.command(LEAVING, "release", "--all", "--yes")
        site.command(LEAVING, "rules", "remove", "--all", "--yes")
        pause.wait(phase / 2)
        said("the tasks are released")
        site.command(LEAVING, "release", "--all", "--yes")
        site.command(LEAVING, "status")
        pause.wait(phase / 2)
        said("all processes are replaced by some without the package")
        for place in range(2):
            fresh = site.worker(PLAIN)
            workers[place].stop()
            workers[place] = fresh
        beat.stop()
        site.beat(PLAIN)
        pause.wait(phase)
        said("the end")
        return told(site, begin + 2, time.time() - 1)


def said(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S', time.gmtime())} {what}", flush=True)


def told(site: Site, begin: float, end: float) -> int:
    """Print a table; return 1 if a slot was lost or doubled."""
    body, wrong = [], 0
    for name, seconds in SECONDS.items():
        times = [when for when in site.runs(name) if begin < when < end]
        gaps = [after - before for before, after in pairwise(times)]
        lost = sum(round(gap / seconds) - 1 for gap in gaps if gap > 1.5 * seconds)
        doubled = sum(gap < seconds / 2 for gap in gaps)
        wrong += lost + doubled
        wrong_at = [
            f"{time.strftime('%H:%M:%S', time.gmtime(after))} {after - before:.1f}"
            for before, after in pairwise(times)
            if not seconds / 2 <= after - before <= 1.5 * seconds
        ]
        print(f"{name}: {wrong_at}" if wrong_at else f"{name}: all right")
        body.append((name, len(times), lost, doubled, f"{min(gaps):.1f}", f"{max(gaps):.1f}"))
    once = site.runs("once")
    print(rows(("entry", "runs", "lost", "doubled", "shortest gap, s", "longest"), body))
    print(f"{len(once)} of {WAITING} tasks have run by now")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
