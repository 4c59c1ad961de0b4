"""Four accidents, side by side: no worker, a killed one, a Redis that restarts, a deploy.

Both sides get the same calls, on one Redis, with a worker each. The show prints the results of the
plain side, and checks those of celery_delayq.
"""

import contextlib
import json
import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from celery.result import AsyncResult
from process import Problem, pause
from story import LATEST, LONGER, span

from celery_delayq import Outcome, ScheduledResult

from . import delayed, delayed_renamed, plain, plain_renamed
from .worker import Worker

TAKEN = 3.0  # seconds for the plain worker to take its messages
NOT_COMING = 1.5  # seconds after which a task that did not run is reported
DISCARDED = "unregistered task of type"
NAMES = {delayed.remind.name: delayed_renamed.send_reminder.name}
UNACKED = "unacked"  # kombu's hash of the messages that a worker took, for an hour


class Play:
    """Plays the four accidents, and reports them line by line.

    Attributes:
        wrong: A sentence for each promise that celery_delayq broke.
    """

    def __init__(self, folder, redis, tell):
        """*tell* takes the seconds since the start, and a text for both sides or one for each."""
        self._redis = redis
        self._tell = tell
        self._begun = time.monotonic()
        self._plain = Worker("side_by_side.plain", folder / "plain.log")
        self._delayed = Worker("side_by_side.delayed", folder / "delayed.log")
        self._watched = []
        self.wrong = []

    def play(self, heading):
        """*heading* takes the title of each part."""
        # No result is awaited here. A subscription would have to survive a restart of Redis.
        for app in (plain.app, delayed.app):
            app.backend.on_task_call = lambda *_: None
        for release in (delayed, delayed_renamed):
            release.app.conf.delayq_timeout = LATEST  # on a busy machine, Redis may answer late
        with contextlib.closing(self._plain), contextlib.closing(self._delayed):
            self._start()
            heading("No worker runs")
            self._no_worker()
            heading("A worker is killed")
            self._killed()
            heading("Redis restarts")
            if self._redis.keeps:
                self._restarted()
            else:
                self._say("skipped: fakeredis keeps nothing on disk")
            heading("A deploy renames the task")
            self._deployed()
        self._count()

    def _no_worker(self):
        anna, ben, cleo = self._before(7, ("anna", "ben", "cleo"), self._stop)
        heard = plain.app.control.broadcast(
            "revoke", {"task_id": ben.plain.id}, reply=True, timeout=0.5
        )
        cancelled = ben.delayed.cancel()
        self._say(f"revoke ben: {len(heard)} workers received it", f"cancel ben: {cancelled.name}")
        self._must(cancelled is Outcome.DONE, f"ben's cancel answered {cancelled.name}")
        later = timedelta(seconds=2)
        moved = cleo.delayed.reschedule(by=later)
        self._say("move cleo: plain Celery has no such call", f"move cleo by 2 s: {moved.name}")
        self._must(moved is Outcome.DONE, f"cleo's move answered {moved.name}")
        cleo.due += later
        self._start()
        for call in (anna, cleo):
            self._watch(call)
        self._never(ben)

    def _killed(self):
        [call] = self._before(5, ("dave",), self._kill)
        self._start()
        self._watch(call)

    def _restarted(self):
        [call] = self._before(5, ("emil",), self._restart)
        self._watch(call)

    def _deployed(self):
        if self._plain.status is not None:
            self._plain.stop()
            self._plain.start()
            self._plain.wait_ready()
            self._say("a supervisor starts the worker again", "")
        [call] = self._before(12, ("fay",), self._deploy)
        self._wait(lambda: DISCARDED in self._plain.said(), NOT_COMING + self._until(call))
        self._wait(
            lambda: delayed.delayq.select(state="unknown").count(), self._until(call) + LATEST
        )
        self._say(self._of_plain(call), "fay is kept: no worker knows its task")
        [(old, new)] = NAMES.items()
        said = self._delayed.command("edit", "--task", old, "--to-task", new, "--yes")
        self._say("plain Celery has no such call", f"edit --to-task: {said[-1]}")
        self._watch(call)

    # The actions of both sides.

    def _before(self, seconds, users, act):
        """Schedule tasks, and act before they are due; once more if this machine was too slow."""
        for longer in LONGER:
            calls = self._schedule_all(users, seconds * longer)
            act()
            if _now() < calls[0].due:
                return calls
            self._say("this machine is busy; that was too late")
            if not self._delayed.up:
                self._start()
        raise Problem(f"this machine was too slow: {', '.join(users)} were due before that")

    def _schedule_all(self, users, due):
        calls = [self._schedule(user, due) for user in users]
        names = ", ".join(users)
        self._say(f"{names}: countdown={due}", f"{names}: delay_for({due})")
        self._wait(lambda: all(self._in_memory(one.plain.id) for one in calls), TAKEN)
        return calls

    def _schedule(self, user, seconds):
        plain_due = _now() + timedelta(seconds=seconds)
        of_plain = plain.remind.apply_async((user,), countdown=seconds)
        of_delayed = delayed.remind.delay_for(seconds, user)
        return Call(user, of_plain, plain_due, of_delayed, of_delayed.due)

    def _in_memory(self, task_id):
        """Whether the plain worker has taken this task's message."""
        return f"[{task_id}] received" in self._plain.said()

    def _start(self):
        self._plain.start()
        self._delayed.start()
        for worker in (self._plain, self._delayed):
            worker.wait_ready()
        self._say("both workers started")

    def _stop(self):
        self._plain.stop()
        self._delayed.stop()
        self._say("both workers stopped")

    def _kill(self):
        self._plain.kill()
        self._delayed.kill()
        self._say("both workers killed with kill -9")

    def _restart(self):
        self._redis.restart()
        self._say("Redis restarted")

    def _deploy(self):
        self._plain.deploy(plain_renamed.__name__)
        self._delayed.deploy(delayed_renamed.__name__)
        found = [json.loads(line) for line in self._delayed.command("preflight", "--json")]
        self._say(
            "plain Celery has no such check",
            *(f"preflight: {one['count']} waits, and {one['sentence']}" for one in found),
        )
        self._must(
            [one["task"] for one in found] == [*NAMES], f"the preflight found {found or 'nothing'}"
        )
        self._stop()
        self._start()

    # The checks.

    def _watch(self, call):
        """Report when a task ran on each side; celery_delayq's must run once, and in time."""
        self._wait(lambda: _ran(call.delayed), self._until(call) + LATEST)
        ran = _ran(call.delayed)
        late = (ran - call.due).total_seconds() if ran else None
        self._must(ran, f"{call.user} did not run")
        self._must(not ran or late >= 0, f"{call.user} ran early")
        self._watched.append(call)
        self._wait(lambda: _ran(call.plain), NOT_COMING)
        told = f"{call.user} ran, {span(late)} late" if ran else f"{call.user} did not run"
        self._say(self._of_plain(call), told)

    def _of_plain(self, call):
        ran = _ran(call.plain)
        if ran:
            return f"{call.user} ran, {span((ran - call.plain_due).total_seconds())} late"
        if self._plain.status:
            return f"the worker ended with status {self._plain.status}"
        if DISCARDED in self._plain.said():
            return f"{call.user} was discarded: the worker does not know the task"
        if any(call.plain.id.encode() in each for each in self._unacked()):
            return f"{call.user} is held by the dead worker"
        return f"{call.user} did not run"

    def _until(self, call):
        return max(0.0, (call.due - _now()).total_seconds())

    def _never(self, call):
        self._wait(lambda: _ran(call.plain), NOT_COMING)
        ran = _ran(call.delayed)
        self._must(not ran, f"{call.user} ran, and was cancelled")
        plainly = "ran, though it was revoked" if _ran(call.plain) else "did not run"
        self._say(f"{call.user} {plainly}", f"{call.user} {'ran' if ran else 'did not run'}")

    def _unacked(self):
        with plain.app.connection() as connection:
            return connection.default_channel.client.hvals(UNACKED)

    def _count(self):
        """Check that each task ran once. The workers have ended, so their logs are complete."""
        for call in self._watched:
            runs = self._delayed.said().count(f"[{call.delayed.id}] succeeded")
            self._must(runs == 1, f"{call.user} ran {runs} times")

    def _must(self, true, otherwise):
        if not true:
            self.wrong.append(f"side by side: {otherwise}")

    def _say(self, *texts):
        """Report a text for each side, or one for both."""
        self._tell(time.monotonic() - self._begun, *texts)

    def _wait(self, come, seconds):
        until = time.monotonic() + seconds
        while not come() and time.monotonic() < until:
            self._delayed.check()
            pause()


@dataclass
class Call:
    """One reminder, on both sides, and when it should run there."""

    user: str
    plain: AsyncResult
    plain_due: datetime
    delayed: ScheduledResult
    due: datetime


def _ran(result):
    """Return when a task ended, by its result; None if it did not."""
    result._cache = None
    return result.date_done if result.successful() else None


def _now():
    return datetime.now(timezone.utc)
