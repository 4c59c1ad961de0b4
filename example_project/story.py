"""A story: the events of a scene with their times, and the expected results."""

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from celery_delayq import Outcome, ScheduledResult

LATEST = 30.0  # seconds from due to running, on a busy machine; "never early" has no tolerance
MILLISECOND = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# How much longer all times of a story are at its first try, and at the next ones.
LONGER = (1, 4, 12)


def due_after(delay, now):
    """Return the due time of a task that is scheduled *now*, with a *delay* in seconds.

    It is a whole millisecond: rounded up, or, without a delay, the one that *now* is in.
    """
    exact = now + timedelta(seconds=delay)
    begun = exact - (exact - EPOCH) % MILLISECOND
    return begun + MILLISECOND if delay and begun < exact else begun


class TooSlow(Exception):
    """This machine was so busy that an act came after the time before which it had to come."""


@dataclass(frozen=True)
class Expected:
    """A task that must succeed once, with this result.

    *due* is the earliest and the latest due time it may have, as Unix times; or None.
    """

    who: str
    due: tuple[float, float] | None
    answer: str

    def problems(self, runs, second):
        ended = [run for run in runs if run.state != "IGNORED"]
        if len(ended) != 1:
            yield f"{self.who} ran {len(ended)} times, not once"
            return
        [run] = ended
        if (run.state, run.answer) != ("SUCCESS", self.answer):
            yield f"{self.who} ended with {run.state}, {run.answer!r}; not with {self.answer!r}"
        if self.due and not self.due[0] <= run.due <= self.due[1]:
            when, promised = second(run.due), second(self.due[0])
            yield f"{self.who} ran for {when:.3f} s, and was promised for {promised:.3f} s"
        if run.began > run.due + LATEST:
            yield f"{self.who} ran {span(run.began - run.due)} late; {span(LATEST)} is the bound"


class Story:
    """One scene's story: its actions, its output and its errors.

    `name` is its module in scenes/; `play` is a generator that yields what it waits for: a number
    of seconds, or a function that must become true. Its times are multiplied by `longer`.
    """

    name = title = scale = ""
    longer = 1

    def __init__(self, stage):
        self.stage = stage
        self.expected = {}  # by task id; no other task may run
        self.scheduled = {}  # by task id
        self.given_up = set()  # ids of tasks of tries that were too slow
        self.wrong = []
        self.stopped = ""  # why it could not go on

    def play(self):
        raise NotImplementedError

    def summary(self):
        """Return one sentence about the results, if all are right."""
        raise NotImplementedError

    # For the stories.

    def does(self, what, call, *, answers=None, due_in=None, before=None):
        """Do it, and report it; *answers* and *due_in*, in seconds, are the expected results.

        If Redis's clock is past *before* by then, the story is played once more.
        """
        begun = self.stage.redis_now()
        answer = call()
        ended = self.stage.redis_now()
        self.tell(f"{what} → {self._said(answer)}")
        if isinstance(answer, ScheduledResult):
            self.scheduled[answer.id] = answer
        if before is not None and ended >= before:
            raise TooSlow(f"{what}: {span((ended - before).total_seconds())} too late")
        if answers is not None and answer != answers:
            self.wrong.append(
                f"{what}: the answer was {self._said(answer)}, not {self._said(answers)}"
            )
        if due_in is not None:
            # Redis set it between these two readings of its clock.
            earliest, latest = (due_after(due_in, now) for now in (begun, ended))
            dues = (answer.due, earliest, latest)
            due, soon, late = (f"{(one - begun) / MILLISECOND:.3f} ms" for one in dues)
            self.must(
                earliest <= answer.due <= latest,
                f"{what}: due {due} after the call, not {soon} to {late}",
            )
        return answer

    def tell(self, text):
        self.stage.tell(self.name, text)

    def must(self, true, otherwise):
        if not true:
            self.wrong.append(otherwise)

    def will_run(self, who, task_id, due, answer):
        """Expect one run for this due time, for one between two, or, with None, for any."""
        times = due if isinstance(due, tuple) else (due, due)
        stamps = None if due is None else tuple(one.timestamp() for one in times)
        self.expected[task_id] = Expected(who, stamps, answer)

    def has_run(self, task_id):
        return lambda: any(run.state != "IGNORED" for run in self.stage.runs_of(task_id))

    def _said(self, answer):
        if isinstance(answer, Outcome):
            return answer.name
        if isinstance(answer, ScheduledResult):
            kept = "kept, " if answer.existed else ""
            return f"{kept}due at {self.second(answer.due)}"
        return str(answer)

    def second(self, time):
        """Return a Unix time in seconds since the start, as text."""
        return f"{self.stage.second(time.timestamp()):.2f} s"

    # For the show.

    def tries(self):
        """Play it; if this machine is too slow for its times, once more with longer ones."""
        for self.longer in LONGER:
            try:
                return (yield from self.play())
            except TooSlow as slow:
                self.tell(f"this machine is busy; {slow}")
                yield from self._give_up()
                reason = slow
        raise reason

    def _give_up(self):
        self.stage.cancel_all()
        yield lambda: all(
            one.state == "REVOKED" or self.has_run(one.id)() for one in self.scheduled.values()
        )
        self.given_up |= set(self.scheduled)
        self.scheduled.clear()
        self.expected.clear()

    def problems(self):
        yield from self.wrong
        if self.stopped:
            yield self.stopped
            return
        runs = [run for run in self.stage.runs if run.task.startswith(f"scenes.{self.name}.")]
        for task_id, expected in self.expected.items():
            mine = [run for run in runs if run.id == task_id]
            yield from expected.problems(mine, self.stage.second)
        for run in runs:
            if run.id not in self.expected and run.id not in self.given_up:
                yield f"{run.answer!r} ran, and should not have"
            if run.due is not None and run.began < run.due:
                yield f"{run.answer!r} ran {span(run.due - run.began)} early"

    def late(self, who):
        """Return how late a user's task began, as text."""
        [task_id] = [task_id for task_id, one in self.expected.items() if one.who == who]
        run = self.stage.runs_of(task_id)[-1]
        return span(run.began - run.due)


def span(seconds):
    return f"{seconds * 1000:.0f} ms" if abs(seconds) < 1 else f"{seconds:.2f} s"
