"""Recurring rules for the driver: their callers and writers, and how their rows read."""

from datetime import timedelta
from functools import cache
from types import SimpleNamespace
from typing import Any

from celery import Celery

from celery_delayq import DelayQ
from celery_delayq.contrib import rule_store
from celery_delayq.contrib.care import dump
from celery_delayq.contrib.care.lines import DUMP, END, FORMAT, Line, line_of
from celery_delayq.contrib.care.load import load
from celery_delayq.contrib.rule_store import Stored
from celery_delayq.contrib.rules import face, step, writing
from celery_delayq.contrib.rules.every import every
from celery_delayq.contrib.rules.plan import plan_of
from celery_delayq.contrib.rules.step import Writer
from celery_delayq.core.clock import EPOCH
from celery_delayq.core.services import Services
from celery_delayq.core.settings import Settings
from celery_delayq.core.store import Entries
from celery_delayq.errors import InvalidOption
from tests.lab.simulator.books import Answer, RulePlan
from tests.lab.simulator.sight import RuleView
from tests.store.support import TASK

MOST_MISSED = 2
TAG = "every:"
NOWHERE = "redis://127.0.0.1:1/0"  # no app here connects to its broker, or to a store

# So that the few slots of a history reach each of the writer's limits.
LIMITS: list[tuple[Any, str, Any]] = [
    (writing, "AHEAD", timedelta(seconds=12)),
    (writing, "MOST", 3),
    (writing, "MOST_MISSED", MOST_MISSED),
    (rule_store, "CLAIM_MS", 4000),
    (step, "REST", 10.0),
]


class RuleCaller:
    """A process's rules, by the package's own methods and writer.

    Args:
        known: The process's own entries.
        relayed: Whether runs are published by scanners, and not by scripts.
    """

    def __init__(self, known: Any, *, relayed: bool):
        self._app = _app("amqp://127.0.0.1:1" if relayed else NOWHERE)
        self._mine = _Mine(self._app, known)
        self._writer = Writer(self._mine)
        self._dumped: list[Line] = []  # of one rule

    def look(self) -> float:
        """Look at all rules, as the writer's thread does; return after how many seconds again."""
        return self._writer.look()

    def make(self, one: Any) -> Answer:
        """Make a planned call.

        Raises:
            Unavailable: it is not known what became of it.
        """
        if one.kind == "every":
            return self._set(one.rule, one.plan)
        if one.kind in ("dump", "load"):
            return self._dump(one.rule) if one.kind == "dump" else self._load()
        rule = face.rule(self._mine, one.rule)
        if rule is None:
            return Answer("MISSING")
        change = {"every pause": rule.pause, "every resume": rule.resume}
        return Answer("CHANGED" if change.get(one.kind, rule.remove)() else "SAME")

    def _dump(self, name: str) -> Answer:
        """Dump the rules, and keep the line of one; a read of all tasks would seldom succeed."""
        found = [line for line in dump._rules(self._mine.services) if line["name"] == name]
        end = line_of(END, tasks=0, unreadable=0)
        self._dumped = [line_of(DUMP, format=FORMAT), *found, end] if found else []
        return Answer("DUMPED" if found else "MISSING")

    def _load(self) -> Answer:
        if not self._dumped:
            return Answer("MISSING")
        return Answer("LOADED" if load(self._mine, self._dumped) else "REFUSED")

    def _set(self, name: str, plan: RulePlan) -> Answer:
        # The broker of a world has no queues to declare.
        signature = self._app.signature(TASK, (f"call:{plan.name};",), declare=[])
        if plan.key:
            signature.set(delayq_key=plan.key)
        if plan.hold_s:
            signature.set(delayq_unique_until="finished", delayq_unique_for=plan.hold_s)
        given = {"missed": plan.missed, "jitter": plan.jitter, "replace": True}
        try:
            every(self._mine, name, signature, timedelta(seconds=plan.seconds), **given)
        except InvalidOption as error:
            if error.name == "name":  # it was removed meanwhile
                return Answer("MISSING")
            raise
        return Answer("SET")


class _Mine:
    """A process's own ``DelayQ``, of an app that all processes share."""

    def __init__(self, app: Celery, known: Any):
        self.services = _Services(_App(app, self), known)


class _App:
    def __init__(self, app: Celery, delayq: _Mine):
        self._app = app
        self.delayq = delayq

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)

    # A rule's task has to be the app's own.
    def __eq__(self, other: object) -> bool:
        return other is self or other is self._app

    def __hash__(self) -> int:
        return hash(self._app)


class _Services(Services):
    def __init__(self, app: Any, known: Any):
        super().__init__(app)
        self._known = known

    @property
    def entries(self) -> Entries:
        return self._known.now()

    @property
    def settings(self) -> Settings:
        return _settings(len(self.entries.unasked_shards))


@cache
def _settings(shards: int) -> Settings:
    return Settings.load({"delayq_shards": shards})


@cache
def _app(broker: str) -> Celery:
    app = Celery("simulated", broker=broker, set_as_current=False)
    app.conf.delayq_url = NOWHERE
    DelayQ(app)
    app.task(_remind, name=TASK, shared=False)
    return app


def _remind(text: str) -> None:
    """Never runs: here no worker takes messages from a queue."""


@cache
def rule_view(name: bytes, row: bytes) -> RuleView:
    """The rule that a row describes."""
    stored = Stored.read(SimpleNamespace(name=name, row=row, trouble=b""), 0, EPOCH)
    plan = plan_of(stored)
    (text,) = plan.signature_of(_app(NOWHERE)).args
    return RuleView(
        *(stored.revision, round(stored.last.timestamp() * 1000), stored.flags, stored.digest),
        *(text[5:-1], round(float(plan.timing.text.split()[1]) * 1000)),
        offset_ms=plan.offset(stored.name) // timedelta(milliseconds=1),
        most={"none": 0, "one": 1, "all": MOST_MISSED}[plan.missed],
        key=plan.key,
        since_ms=stored.since_ms,
    )


CUTS: dict[str, tuple[Any, ...]] = {
    "a run is written for any revision": ("or rule.revision ~= revision or", "or"),
    "a slot is not compared with the last one": ("if slot > rule.last then", "if true then"),
    "a rule's old runs are not cleared up": ("flag_rule(rule, 'c', true)", ""),
    "a rule writes before its old runs are cleared up": (
        "if rule.is_unclear:",
        "if 'r' in rule.flags:",
        (writing, "look_at"),
        ("string.find(rule.flags, '[pcr]')", "string.find(rule.flags, '[pr]')"),
    ),
    "a rule is changed by late requests": (
        "if is_fenced(call, name_of_rule(called)) then return nil, 'stale' end",
        "",
    ),
    "a rule that stays as it is leaves no fence": (
        "return 'same'",
        "call.fenced = {} return 'same'",
    ),
    "a changed rule goes on behind the last slot": (
        "go_on(call, rule, last)\n  flag_rule",
        "rule.from = whole(rule.last) flag_rule",
    ),
    "a resumed rule goes on behind the last slot": (
        "go_on(call, rule)\n      flag_rule",
        "rule.from = whole(rule.last) flag_rule",
    ),
    "a new rule's revisions begin at one": (
        "tonumber(row.revision) or call.now",
        "1",
    ),
    "a changed rule is looked at when it was changed": (
        "redis.call('ZADD', keys.rules_next, 0, called)",
        "redis.call('ZADD', keys.rules_next, whole(call.now), called)",
    ),
    "a rule that is loaded takes the place of the one that is there": (
        "(given.last), since(call, rule)))\n",
        "(given.last), since(call, rule))) rule.plan, rule.digest = given.plan, given.digest\n",
    ),
    "a rule is loaded again though it is the same": (
        "if rule.since == given.since then return 'same' end",
        "",
    ),
    "a run is written again that was delivered before its rule was loaded": (
        "was_handed_over(run.id) and 'taken' or",
        "",
    ),
    "a loaded rule has no last slot": (
        "tonumber(row.last) or since(call, row)",
        "since(call, row)",
    ),
    "a process clears up though another one has": (
        "if not _is_as_read(",
        "if False and not _is_as_read(",
        (rule_store, "clear"),
    ),
    "a run that a user moved is cleared up as well": (
        "if is_back or task.revision // 1000 == ms_of(task.created) or is_own(task):",
        "if True:",
        (rule_store, "clear"),
    ),
}
