"""What happens at the top-up page, and what must come of it.

visit opened --> waiting --> queued --> ran
                 |  ^
                 |  +-- rescheduled: reschedule(), earlier or later
                 +--> cancelled: paid
"""

import gc
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from reminders import app, delayq, page_opened, paid

from celery_delayq import Outcome

LATEST = timedelta(seconds=1)  # from due to running in the worker; more is a failure
AFTERWARDS = 0.7  # seconds to stay on, in case something runs that should not

# What Celery says, and what the table says.
STATES = {"SCHEDULED": "waiting", "SUCCESS": "ran", "REVOKED": "cancelled", "FAILURE": "failed"}

MILLISECOND = timedelta(milliseconds=1)


@dataclass
class Change:
    """A change of mind: another time, or without one a payment, which cancels."""

    at: float
    answer: Outcome = Outcome.DONE
    after: float | None = None
    by: float | None = None

    @property
    def call(self):
        if self.by is not None:
            return f"reschedule(by={self.by:g})"
        return "cancel()" if self.after is None else f"reschedule(after={self.after:g})"

    @property
    def cancels(self):
        return self.after is None and self.by is None

    def make(self, reminder):
        if self.cancels:
            return paid(reminder)
        return reminder.reschedule(after=self.after, by=self.by)


@dataclass
class Visit:
    """One user at the top-up page, and the reminder that this schedules; times in seconds."""

    user: str
    story: str
    opens: float
    patience: float
    change: Change | None = None
    reminder: object = None
    task_id: str = ""
    dues: list[datetime] = field(default_factory=list)
    answer: Outcome | None = None
    state: str = ""
    told: dict | None = None
    wrong: list[str] = field(default_factory=list)

    @property
    def due(self):
        return self.dues[-1] if self.dues else None

    @property
    def ran(self):
        return self.told and self.told["ran"]

    @property
    def late(self):
        return self.ran - self.due

    @property
    def cancelled(self):
        return self.change is not None and self.change.cancels and self.answer is Outcome.DONE

    @property
    def settled(self):
        return self.state in ("ran", "failed") or (self.state == "cancelled" and self.cancelled)


def visits():
    return [
        Visit("anna", "forgets to pay", 0.0, 2.0),
        Visit("ben", "pays in time", 0.0, 4.0, Change(1.5)),
        Visit("cleo", "wants it earlier", 0.0, 6.5, Change(2.5, after=2.25)),
        Visit("dora", "wants it later", 0.0, 3.0, Change(2.0, by=4.0)),
        Visit("emil", "pays too late", 0.0, 3.5, Change(5.0, answer=Outcome.HANDED_OVER)),
        Visit("fay", "comes at 3 s", 3.0, 1.25),
        Visit("gus", "comes with hal", 0.5, 5.5),
        Visit("hal", "comes with gus", 0.5, 5.5),
    ]


class Show:
    """The visits, played against the clock."""

    def __init__(self):
        self.visits = visits()
        self.start = datetime.now(timezone.utc)
        self._clock = time.monotonic()
        self.events = []

    @property
    def now(self):
        return time.monotonic() - self._clock

    @property
    def over(self):
        due = max(visit.opens + visit.patience for visit in self.visits)
        ends = max([due, *(self.since_start(visit.due) for visit in self.visits if visit.dues)])
        if self.now < ends + AFTERWARDS:
            return False
        given_up = self.now > ends + LATEST.total_seconds() + AFTERWARDS
        return given_up or all(visit.settled for visit in self.visits)

    def since_start(self, moment):
        return (moment - self.start).total_seconds()

    def step(self):
        """Do what is to be done by now, and look how everything stands."""
        for visit in self.visits:
            if visit.reminder is None and self.now >= visit.opens:
                self._open(visit)
            if visit.change and visit.answer is None and self.now >= visit.change.at:
                self._change(visit)
            if visit.reminder and not visit.settled:
                self._look(visit)

    def _open(self, visit):
        patience = timedelta(seconds=visit.patience)
        before = datetime.now(timezone.utc)
        visit.reminder = page_opened(visit.user, patience)
        visit.task_id = visit.reminder.id
        self._promised(visit, before + patience, datetime.now(timezone.utc) + patience)
        self._tell(visit, f"opened the page, due {self.since_start(visit.due):.3f}")

    def _change(self, visit):
        change, old = visit.change, visit.due
        before = datetime.now(timezone.utc)
        visit.answer = change.make(visit.reminder)
        if change.after is not None:
            after = timedelta(seconds=change.after)
            self._promised(visit, before + after, datetime.now(timezone.utc) + after)
        elif change.by is not None:
            by = timedelta(seconds=change.by)
            self._promised(visit, old + by, old + by)
        self._tell(visit, f"{change.call} → {visit.answer.name}", call=True)

    def _promised(self, visit, earliest, latest):
        """Keep the due time that the result names; it lies within what was asked for."""
        visit.dues.append(visit.reminder.due)
        # Due times are whole milliseconds, rounded up.
        if not earliest <= visit.due <= latest + MILLISECOND:
            visit.wrong.append(
                f"was asked for at {self.since_start(earliest):.3f} s"
                f" and promised for {self.since_start(visit.due):.3f} s"
            )

    def _look(self, visit):
        visit.state = STATES.get(visit.reminder.state, "queued")
        if visit.state == "waiting" and len(visit.dues) > 1:
            visit.state = "rescheduled"
        if visit.state == "ran":
            visit.told = visit.reminder.result
            self._tell(visit, f"ran at {self.since_start(visit.ran):.3f}, {ms(visit.late)} late")

    def _tell(self, visit, text, *, call=False):
        self.events.append((self.now, visit.user, text, call))

    def close(self):
        """Drop the results: each holds a subscription, which its Redis must outlive."""
        for visit in self.visits:
            visit.reminder = None
        gc.collect()  # Celery's results are cycles
        app.close()
        delayq.close()


def ms(span):
    return f"{span / MILLISECOND:.0f} ms"
