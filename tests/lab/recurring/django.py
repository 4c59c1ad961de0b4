"""``./tests/run recurring django``: rules and plain beat in a Django project, side by side.

Each has six tasks of a second, and a prefork worker whose processes take one task each; beat has a
process of its own. A receiver of ``before_task_publish`` writes a row by the ORM, and so does each
run: a run has to have one row of each.
"""

import argparse
import contextlib
import os
import re
import sys
from importlib.metadata import version
from threading import Event

from celery_delayq.core.store import What
from tests.lab.recurring.shown import heading, rows
from tests.support.forked import PythonProcess
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker import ROOT, WorkerProcess

MODULE = "tests.lab.recurring.django_app"
WORKER = ("-P", "prefork", "-c", "4")
BAD_LINE = re.compile(r"Traceback|ERROR|CRITICAL")
ENDED = 900.0  # seconds until the last runs have ended, at most


class Side:
    """Rules, or beat: its processes, and its rows."""

    def __init__(self, way: str, server: RedisServer, broker: str, stack: contextlib.ExitStack):
        self.way = way
        env = {"RECURRING_WAY": way, "RECURRING_BROKER": broker}
        log = server.folder / f"{way}-worker.log"
        self.processes = [WorkerProcess(MODULE, *WORKER, log=log, env=env)]
        if way == "beat":
            scheduled = ("-s", str(server.folder / "schedule"), "--pidfile", "", "-l", "INFO")
            log = server.folder / "beat.log"
            command = ("-m", "celery", "-A", MODULE, "beat", *scheduled)
            self.processes.append(PythonProcess(*command, log=log, env=env, cwd=ROOT))
        for process in self.processes:
            stack.callback(process.kill)

    def ids(self, what: str) -> list[str]:
        from tests.lab.recurring.django_app import Row

        found = Row.objects.using(self.way).filter(what=what).values_list("task_id", flat=True)
        return sorted(found)

    def end(self, is_cancelled: set[str]) -> tuple[object, ...]:
        """Wait until all that was published has run, and end the processes; return the figures."""
        with contextlib.suppress(AssertionError):  # the figures say so
            eventually(lambda: self._missing(is_cancelled) == 0, ENDED)
        published, ran = self.ids("published"), self.ids("ran")
        statuses = [process.stop() for process in self.processes]
        lines = [line for process in self.processes for line in process.lines]
        bad = [line for line in lines if BAD_LINE.search(line)]
        print(*(f"{self.way}: {line}" for line in bad[:10]), sep="\n")
        doubled = len(published) + len(ran) - len({*published}) - len({*ran})
        missing = self._missing(is_cancelled)
        return len(published), len(is_cancelled), len(ran), doubled, missing, len(bad), statuses

    def _missing(self, is_cancelled: set[str]) -> int:
        """How many were published and did not run, or ran without that."""
        return len(({*self.ids("published")} - is_cancelled) ^ {*self.ids("ran")})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, metavar="N", help="default: 10")
    engines = ("sqlite3", "postgresql")
    parser.add_argument("--engine", choices=engines, default=engines[0], help="of the databases")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(RedisServer())
        os.environ["RECURRING_ENGINE"] = options.engine
        os.environ["RECURRING_FOLDER"] = str(server.folder)
        os.environ["RECURRING_BROKER"] = server.url(0)
        from tests.lab.recurring import django_app as project

        print(heading(f"Django {version('django')}, {options.engine}"), flush=True)
        for way in project.WAYS:
            project.make_table(way)
        sides = [Side(way, server, server.url(db), stack) for db, way in enumerate(project.WAYS)]
        for side in sides:
            side.processes[0].wait_ready(90)
        Event().wait(options.minutes * 60)
        rules, beat = sides
        for rule in project.delayq.rules():
            rule.pause()
        history = project.delayq.history()
        cancelled = {event.id for event in history if event.what is What.CANCELLED}
        beat.processes[-1].stop()
        head = ("", "published", "cancelled at the end", "ran", "doubled", "missing", "bad lines")
        body = [(side.way, *side.end(gone)) for side, gone in ((rules, cancelled), (beat, set()))]
        print(rows((*head, "exit"), body), f"load {os.getloadavg()[2]:.1f}", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
