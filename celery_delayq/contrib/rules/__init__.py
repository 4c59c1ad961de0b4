"""Recurring tasks: a rule writes its next runs ahead, as ordinary entries.

    every(name, signature, schedule) --> a rule in the store
    a scanner's process --the slots that come next--> one step: entries, and the last slot

There is no scheduler with a loop of its own. A writer claims a rule, so one process calls the
user's code for a run. If its claim lapses, two may, or one may do so late: the step compares a slot
with the last one, so it becomes one entry at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from celery.app.task import Task
from celery.signals import beat_init

from ...core.services import services_of

if TYPE_CHECKING:
    from ...operations.health import Check, Sight
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


def periods_of(services: Any, task: str) -> Iterator[tuple[str, timedelta]]:
    """Yield the name of each rule that runs a task, and the time between its next two slots."""
    try:
        from .face import all_rules
        from .plan import plan_of
    except ModuleNotFoundError:  # without cronsim a process reads no schedules
        return
    for rule in all_rules(services)[0]:
        if rule.task == task:
            first, second = islice(plan_of(rule._stored).timing.after(rule._stored.now), 2)
            yield rule.name, second - first


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
