"""Callers: threads that schedule, cancel and reschedule at random, and write down what they hear.

Each has ids of its own, and makes its calls one after the other, through the public face. Every
second task has a key of its own, by which it is then cancelled and moved. All have a tag that a few
share, which are cancelled together at times.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from multiprocessing.connection import Connection

from celery import Celery

from celery_delayq import AlreadyScheduled, DelayQ, Item, Outcome
from celery_delayq.errors import StoreError, StoreUnavailable
from tests.lab.faults.history import Call, Span

NEAR, FAR = (0.1, 4.0), 7_200.0  # seconds ahead: tasks that go during the run, and tasks that stay
CREW = 2  # callers in a process
KNOWN = 40  # ids of a caller that it cancels, moves or uses again
BULK = (5, 60)
GROUP = 8  # versions of a caller that share a tag
QUICK = {"max_retries": 3, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.1}


def note(*_args):
    """A task that never runs: its messages are read in the queue."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def new_delayq(conf: dict) -> DelayQ:
    """A DelayQ of an app with this configuration, whose task is ``.note``."""
    app = Celery("callers", set_as_current=False)
    app.conf.update({"task_publish_retry_policy": QUICK, **conf})
    delayq = DelayQ(app)
    delayq.note = app.task(name="note", shared=False)(note)
    return delayq


class Caller:
    """One caller; ``run`` works until it is stopped, ``history`` has its calls and answers."""

    def __init__(self, delayq: DelayQ, name: str, seed: str, *, pace: float):
        self.history: list[Call] = []
        self._delayq = delayq
        self._name = name
        self._random = random.Random(seed)
        self._pace = pace
        self._version = 0
        self._known: list[str] = []
        self._groups: dict[str, list[str]] = {}  # tag -> ids that had it

    def run(self, over: threading.Event) -> None:
        while not over.wait(self._random.uniform(0, 2 * self._pace)):
            acts = {
                self._schedule: 20,
                self._bulk: 2,
                self._cancel: 8,
                self._reschedule: 8,
                self._run_now: 2,
                self._clear: 1,
            }
            self._random.choices([*acts], [*acts.values()])[0]()

    # Its calls.

    def _schedule(self) -> None:
        again = self._known and self._random.random() < 0.2
        task_id = self._random.choice(self._known) if again else self._new_id()
        version, due = self._new_version(), self._due()
        while self._schedule_once(task_id, version, due) == "unknown":
            # A caller with an id of its own may safely repeat the call.
            if self._random.random() < 0.5:
                break

    def _schedule_once(self, task_id: str, version: int, due: int) -> str:
        signature = self._delayq.note.s(version).set(task_id=task_id)
        after = self._random.random() < 0.3 and due > now_ms()
        seconds = (due - now_ms()) / 1000
        when = {"after": max(seconds, 0)} if after else {"at": due / 1000}
        call = self._begin("schedule", task_id, version)
        options = {"key": _key_of(task_id), "tags": [self._tag_of(task_id, version)]}
        answer, result = self._heard(lambda: self._delayq.schedule(signature, **when, **options))
        if answer == "done":
            exact = _ms(result.due)
            span = (exact, exact)
        else:
            span = self._span(call, when)
        self._note(call, answer, span)
        return answer

    def _bulk(self) -> None:
        self.bulk(self._random.randint(*BULK), self._due())

    def bulk(self, count: int, due: int) -> None:
        """Schedule several tasks for one time, in Unix ms, by one call."""
        versions = {self._new_id(): self._new_version() for _ in range(count)}
        items = [
            Item(
                *((version,), {}, due / 1000, each),
                key=_key_of(each),
                tags=[self._tag_of(each, version)],
            )
            for each, version in versions.items()
        ]
        calls = [self._begin("schedule", *pair) for pair in versions.items()]
        answer, bulk = self._heard(lambda: self._delayq.schedule_many(self._delayq.note, items))
        for place, call in enumerate(calls):
            said = "already" if bulk and bulk.ids[place] is None else answer
            self._note(call, said, (due, due))

    def _cancel(self) -> None:
        if self._known:
            call = self._begin("cancel", self._random.choice(self._known))
            answer, outcome = self._heard(lambda: self._delayq.cancel(**_who(call[1])))
            self._note(call, _word(answer, outcome))

    def _clear(self) -> None:
        """Cancel all tasks with one tag. The answer is only a count, without ids."""
        if not self._groups:
            return
        tag = self._random.choice([*self._groups])
        calls = [self._begin("cancel", task_id) for task_id in self._groups[tag]]
        answer, count = self._heard(lambda: self._delayq.select(tag=tag).cancel())
        assert count is None or count <= len(calls)
        for call in calls:
            self._note(call, "unknown" if answer == "done" else answer)

    def _run_now(self) -> None:
        if self._known:
            call = self._begin("reschedule", self._random.choice(self._known))
            answer, outcome = self._heard(lambda: self._delayq.run_now(**_who(call[1])))
            self._note(call, _word(answer, outcome), (call[3], now_ms() + 1))

    def _reschedule(self) -> None:
        if not self._known:
            return
        kind = self._random.choice(("at", "after", "by"))
        low, high = NEAR
        seconds = round(self._random.uniform(-high if kind == "by" else low, high), 3)
        when = {kind: self._due() / 1000 if kind == "at" else seconds}
        call = self._begin("reschedule", self._random.choice(self._known))
        answer, outcome = self._heard(lambda: self._delayq.reschedule(**_who(call[1]), **when))
        self._note(call, _word(answer, outcome), self._span(call, when), by=kind == "by")

    # Its knowledge.

    def _due(self) -> int:
        far = self._random.random() < 0.1
        return now_ms() + int(1000 * (FAR if far else self._random.uniform(*NEAR)))

    def _new_id(self) -> str:
        task_id = f"{self._name}-{self._version}"
        self._known = [*self._known[-KNOWN:], task_id]
        return task_id

    def _tag_of(self, task_id: str, version: int) -> str:
        tag = f"{self._name} {version // GROUP}"
        group = self._groups.setdefault(tag, [])
        group += [task_id] * (task_id not in group)
        self._groups = dict([*self._groups.items()][-KNOWN:])
        return tag

    def _new_version(self) -> int:
        self._version += 1
        return self._version

    # Its answers.

    def _begin(self, what: str, task_id: str, version: int = 0) -> tuple[str, str, int, int]:
        return what, task_id, version, now_ms()

    def _heard(self, step: Callable[[], object]) -> tuple[str, object]:
        try:
            return "done", step()
        except AlreadyScheduled:
            return "already", None
        except StoreUnavailable:
            return "unknown", None
        except StoreError:
            return "refused", None
        except Exception as error:
            # No answer that the package promises, so the judge will name it.
            return f"raised {error!r}", None

    def _span(self, call: tuple, when: dict[str, float]) -> Span:
        """The due times that an *at*, *after* or *by* can have led to by now, by Redis's clock."""
        ((kind, value),) = when.items()
        ms = round(value * 1000)
        return (call[3] + ms, now_ms() + ms + 1) if kind == "after" else (ms, ms)

    def _note(self, call: tuple, answer: str, due: Span = (0, 0), *, by: bool = False) -> None:
        what, task_id, version, called = call
        self.history.append(Call(task_id, what, called, now_ms(), answer, version, due, by))


def _key_of(task_id: str) -> str | None:
    """Of every second one."""
    return f"key of {task_id}" if int(task_id.rpartition("-")[2]) % 2 else None


def _who(task_id: str) -> dict[str, str]:
    key = _key_of(task_id)
    return {"task_id": task_id} if key is None else {"key": key}


def _word(answer: str, outcome: Outcome | None) -> str:
    return outcome.value if outcome is not None else answer


def _ms(when: datetime) -> int:
    return round(when.astimezone(timezone.utc).timestamp() * 1000)


def callers(pipe: Connection, conf: dict, name: str, seed: str, pace: float) -> None:
    """A process of callers, from the first word until the next; reports their history."""
    logging.getLogger("celery_delayq").setLevel(logging.CRITICAL)  # it warns of each fault
    delayq = new_delayq(conf)
    crew = [
        Caller(delayq, f"{name}.{number}", f"{seed} {name}.{number}", pace=pace)
        for number in range(CREW)
    ]
    over = threading.Event()
    threads = [threading.Thread(target=one.run, args=(over,), daemon=True) for one in crew]
    pipe.send("ready")
    pipe.recv()
    for thread in threads:
        thread.start()
    with suppress(EOFError):
        pipe.recv()
    over.set()
    for thread in threads:
        thread.join()
    pipe.send([call for one in crew for call in one.history])
