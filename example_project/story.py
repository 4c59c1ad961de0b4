"""A story: who does what when in a scene, and what must come of it."""

from dataclasses import dataclass
from datetime import timedelta

from celery_delayq import Outcome, ScheduledResult

LATEST = 10.0  # seconds from due to running, on a machine that is busy; never early is strict
MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Expected:
    """A task that must end well once, and with this answer.

    *due* has the earliest and the latest time, Unix time, for which it may run; or it is None.
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
    """One scene's: what is done, what was told, and what was not as it should be.

    `name` is that of its module in scenes/; `play` is a generator that yields what it waits for:
    so many seconds, or a function that is to become true.
    """

    name = title = scale = ""

    def __init__(self, stage):
        self.stage = stage
        self.expected = {}  # by task id; what else runs should not have
        self.wrong = []
        self.stopped = ""  # why it could not go on

    def play(self):
        raise NotImplementedError

    def summary(self):
        """One sentence on what came of it, when all was as it should be."""
        raise NotImplementedError

    # What a story is told with.

    def does(self, what, call, *, answers=None, due_in=None):
        """Do it, and tell it; *answers* and *due_in*, in seconds, are what must come of it."""
        before = self.stage.redis_now()
        answer = call()
        self.tell(f"{what} → {self._said(answer)}")
        if answers is not None and answer != answers:
            self.wrong.append(
                f"{what}: the answer was {self._said(answer)}, not {self._said(answers)}"
            )
        if due_in is not None:
            # Due times are whole milliseconds, rounded up.
            latest = self.stage.redis_now() + MILLISECOND
            soon, late = ((answer.due - one).total_seconds() for one in (latest, before))
            self.must(
                soon <= due_in <= late,
                f"{what}: due {span(late)} after the call, not {due_in} s",
            )
        return answer

    def tell(self, text):
        self.stage.tell(self.name, text)

    def must(self, true, otherwise):
        if not true:
            self.wrong.append(otherwise)

    def will_run(self, who, task_id, due, answer):
        """It must run once, for this due time; or between two; or, with None, whenever."""
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
        """What that is in seconds since the start, as text."""
        return f"{self.stage.second(time.timestamp()):.2f} s"

    # What the show asks.

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
            if run.id not in self.expected:
                yield f"{run.answer!r} ran, and should not have"
            if run.due is not None and run.began < run.due:
                yield f"{run.answer!r} ran {span(run.due - run.began)} early"

    def late(self, who):
        """How late somebody's task began, as text."""
        [task_id] = [task_id for task_id, one in self.expected.items() if one.who == who]
        run = self.stage.runs_of(task_id)[-1]
        return span(run.began - run.due)


def span(seconds):
    return f"{seconds * 1000:.0f} ms" if abs(seconds) < 1 else f"{seconds:.2f} s"
