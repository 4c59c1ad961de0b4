"""Recurring tasks: a rule writes its next runs ahead, as ordinary entries.

    every(name, signature, schedule) --> a rule in the store
    a scanner's process --the slots that come next--> one step: entries, and the last slot

There is no scheduler with a loop of its own. A writer claims a rule, so one process calls the
user's code for a run. If its claim lapses, two may, or one may do so late: the step compares a slot
with the last one, so it becomes one entry at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from celery.app.task import Task
from celery.signals import beat_init

from ...core.services import Services, services_of

if TYPE_CHECKING:
    from celery.canvas import Signature

    from ...operations.health import Check, Sight
    from .face import Rule
    from .step import Writer

SECONDS = 5.0  # for so long it occupies a place in a worker's pool


def configured(app: Any) -> None:
    """Let a beat process leave those entries alone that are rules; register the task of writers."""
    beat_init.connect(_on_beat, weak=False, dispatch_uid=__name__)
    if app.finalized:
        _register(app)
    else:
        app.on_after_finalize.connect(lambda **_: _register(app), weak=False)


def _register(app: Any) -> None:
    from ..rule_store import TASK

    # With Celery's own base class: an app's may do anything. Nor has it the app's rate limit.
    @app.task(name=TASK, base=Task, shared=False, ignore_result=True, rate_limit=0)
    def write_rules(claims: list[tuple[int, str, list[bytes]]]) -> None:
        """Write the next runs of rules that this worker has claimed."""
        from .writing import write_claimed

        write_claimed(services_of(app), claims, SECONDS)


def _on_beat(sender: Any, **_: Any) -> None:
    from .step import watch

    watch(sender.app, sender.scheduler)


def beside_scanner(app: Any) -> Writer:
    """Return the writer of the command ``scan``."""
    from .step import Writer

    return Writer(app.delayq)


def on_advance(app: Any) -> None:
    """Write the runs of rules as a scanner's process would, now that a test has moved the clock."""
    from .step import Writer

    Writer(app.delayq).write()


def is_run(task_id: str, tags: Sequence[str]) -> bool:
    """Whether a rule has written a task."""
    from .. import rule_store

    return rule_store.is_run(task_id) and any(tag.startswith(rule_store.tag_of("")) for tag in tags)


def checks() -> tuple[Check[Sight]]:
    """Return the check of rules; it needs no cronsim."""
    from .checking import RULES

    return (RULES,)


def listed(services: Any, **asked: Any) -> Any:
    """Return a page of the rules; see :func:`face.listed`.

    Raises:
        ModuleNotFoundError: cronsim is not installed.
    """
    from .face import listed

    return listed(services, **asked)


class RuleMethods:
    """The methods for recurring tasks."""

    services: Services

    def every(
        self,
        name: str,
        signature: Signature[Any] | Task[..., Any],
        schedule: Any,
        *,
        tz: str | None = None,
        dialect: str = "",
        missed: str = "one",
        jitter: float = 0,
        tags: Sequence[str] = (),
        version: int = 0,
        replace: bool = False,
        declared: bool = True,
    ) -> Rule:
        """Let a task recur: its next runs wait in the store, as ordinary tasks.

        This call writes only the rule. A worker, or the command ``scan``, writes the runs, and
        calls ``apply_async`` for that: what it raises is the rule's ``trouble``.

        Saying the same again changes nothing, so each process may say it when it starts. Another
        rule under the name takes the place of the one before: what that has written ahead is
        cancelled, but for runs that somebody moved or edited.

        Args:
            name: The rule's name, of 1 to 200 bytes; its runs have the tag ``every:NAME``.
            signature: The task, with its arguments and options. With ``delayq_key`` one run at a
                time waits, or holds the key; a slot that meets the holder is left out.
            schedule: A timedelta, seconds, Celery's ``crontab`` or ``schedule``, or a text of five
                fields. An interval counts since 1970.
            tz: The zone of the fields; by default the app's.
            dialect: What a text means that restricts the day of the month and the weekday:
                ``"cron"``, either; ``"celery"``, both.
            missed: What becomes of slots at which no scanner was alive: ``"one"``, the latest is
                run; ``"none"``; or ``"all"``, up to 100.
            jitter: By up to how many seconds each run is later than its slot: always by the same,
                which the name decides.
            tags: Tags of its runs.
            version: Processes of two versions may be alive at once, as in a rolling deploy. One
                that says a lower version than the store has changes nothing. Of the same version,
                the last one that says it wins.
            replace: Change a rule that this process has set before. Without it, that is refused,
                as two rules may have got one name by mistake.
            declared: Whether the rule goes with the code that says it, if a worker says it before
                it is ready. ``False``: it stays until somebody removes it, as do rules that are
                said later, or elsewhere.

        Returns:
            The rule.

        Raises:
            InvalidOption: an argument is none, or the schedule never fires.
            TypeError: the task does not take the signature's arguments.
            kombu.exceptions.OperationalError: Redis cannot be reached.
        """
        from .every import every

        return every(
            self.services,
            name,
            signature,
            schedule,
            tz=tz,
            dialect=dialect,
            missed=missed,
            jitter=jitter,
            tags=tags,
            version=version,
            replace=replace,
            declared=declared,
        )

    def rule(self, name: str) -> Rule | None:
        """The rule of this name, or ``None``."""
        from .face import rule

        return rule(self.services, name)

    def rules(self, *, tag: str | None = None) -> list[Rule]:
        """All rules that this version can read, by name; with *tag*, those whose runs have it."""
        from .face import rules

        return rules(self.services, tag=tag)
