"""A story: who does what when in a scene, and what must come of it."""

from dataclasses import dataclass
from datetime import timedelta

from celery_delayq import Outcome, ScheduledResult

LATEST = 10.0  # seconds from due to running, on a machine that is busy; never early is strict
MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Expected:
    """A task that must end well once, and with this answer.

    It is due at *due*, Unix time; or, where that is not *exact*, it may not begin before.
    """

    who: str
    due: float
    answer: str
    exact: bool = True

    def problems(self, runs):
        ended = [run for run in runs if run.state != "IGNORED"]
        if len(ended) != 1:
            yield f"{self.who} ran {len(ended)} times, not once"
            return
        [run] = ended
        if (run.state, run.answer) != ("SUCCESS", self.answer):
            yield f"{self.who} ended with {run.state}, {run.answer!r}; not with {self.answer!r}"
        if self.exact and run.due != self.due:
            yield f"{self.who} ran for a time that is {span(run.due - self.due)} after its own"
        if run.began < self.due:
            yield f"{self.who} ran {span(self.due - run.began)} early"
        if run.began > max(self.due, run.due or 0) + LATEST:
            yield f"{self.who} ran {span(run.began - self.due)} late; {span(LATEST)} is the bound"


class Story:
    """One scene's: what is done, what was told, and what was not as it should be.

    `name` is that of its module in scenes/; `play` is a generator that yields until when it waits:
    a number of seconds since the start, or a function that is to become true.
    """

    name = title = scale = ""

    def __init__(self, stage):
        self.stage = stage
        self.expected = {}  # by task id; what else runs should not have
        self.wrong = []

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

    def will_run(self, who, task_id, due, answer, *, exact=True):
        self.expected[task_id] = Expected(who, due.timestamp(), answer, exact)

    def has_run(self, task_id):
        return lambda: any(run.state != "IGNORED" for run in self.stage.runs_of(task_id))

    def _said(self, answer):
        if isinstance(answer, Outcome):
            return answer.name
        if isinstance(answer, ScheduledResult):
            kept = "kept, " if answer.existed else ""
            return f"{kept}due {self.stage.since_start(answer.due.timestamp()):.2f}"
        return str(answer)

    # What the show asks.

    def problems(self):
        yield from self.wrong
        runs = [run for run in self.stage.runs if run.task.startswith(f"scenes.{self.name}.")]
        for task_id, expected in self.expected.items():
            yield from expected.problems([run for run in runs if run.id == task_id])
        for run in runs:
            if run.id not in self.expected:
                yield f"{run.answer!r} ran, and should not have"
            if run.due is not None and run.began < run.due:
                yield f"{run.answer!r} ran {span(run.due - run.began)} early"

    def late(self, who):
        """How late somebody's task began, as text."""
        [(task_id, expected)] = [one for one in self.expected.items() if one[1].who == who]
        return span(self.stage.runs_of(task_id)[-1].began - expected.due)


def span(seconds):
    return f"{seconds * 1000:.0f} ms" if abs(seconds) < 1 else f"{seconds:.2f} s"
