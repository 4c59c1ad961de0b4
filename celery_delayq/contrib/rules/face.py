"""Rules as users set, read and change them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from celery.app.task import Task
from celery.canvas import Signature

from ...core.clock import from_ms
from ...core.errors import InvalidOption
from ...core.integration.apply_async import signature_of
from ...core.message.signatures import is_canvas
from ...core.scheduling.options import KEY, TAGS
from ...core.services import Services
from ...core.store.extras import MOST_TAGS
from ...core.store.ids import checked_name
from . import store, writing
from .rule import MISSED, Plan, Stored, text_of
from .timing import Timing, timing_of

LONGEST_NAME = 200  # bytes
LONGEST_JITTER = 86_400.0
SHOWN = 3  # of the next times


@dataclass(frozen=True)
class Rule:
    """A recurring task.

    Attributes:
        name: Its name.
        schedule: Five fields, or ``every N s``.
        tz: The zone of the fields.
        task: The name of its task.
        tags: Tags of its runs, beside ``every:NAME``.
        missed, jitter: As for :meth:`DelayQ.every`.
        is_paused: Whether it is paused.
        next: The next three times at which a run is due, UTC; none of a paused rule.
        last: Its last slot: the runs up to that are written, or left out.
        revision: Raised by each change.
    """

    name: str
    schedule: str
    tz: str
    task: str
    tags: tuple[str, ...]
    missed: str
    jitter: float
    is_paused: bool
    next: tuple[datetime, ...]
    last: datetime
    revision: int
    _services: Services = field(repr=False, compare=False)

    def pause(self) -> bool:
        """Cancel what it has written ahead, and write nothing; return whether it was at work."""
        return _change(self._services, self.name, "pause")

    def resume(self) -> bool:
        """Write its runs again, from now on; return whether it was paused."""
        return _change(self._services, self.name, "resume")

    def remove(self) -> bool:
        """Cancel what it has written ahead, and forget it; return whether it was there."""
        return _change(self._services, self.name, "remove")


def every(
    services: Services,
    name: str,
    signature: Signature[Any] | Task[..., Any],
    schedule: Any,
    *,
    tz: str | None,
    dialect: str,
    missed: str,
    jitter: float,
    tags: Sequence[str],
) -> Rule:
    """Set a rule; see :meth:`DelayQ.every`."""
    _checked(name)
    timing = timing_of(schedule, tz=tz, dialect=dialect, default_zone=str(services.timezone))
    plan = _plan_of(signature_of(signature), timing, missed, jitter, tags)
    now = from_ms(services.entries.counts().now_ms)
    shard = store.shard_for(services.entries, name, plan.key)
    before = store.find(services.entries, name)
    if before is None or before.digest != plan.digest:
        draft = Stored(name, 0, now, "-", plan.digest, plan.text.encode(), shard.number)
        writing.entry_of(services, draft, plan, now)  # what cannot be made is refused here
    if before is not None and before.shard != shard.number:  # it has another key
        _change(services, name, "remove")
    answer = store.change(shard, name, "put", digest=plan.digest, rest=plan.rest(name))
    if answer != "same":
        _settle(services, name)
    made = rule(services, name)
    if made is None:
        raise InvalidOption("name", name, "the name of a rule that nobody removes meanwhile")
    return made


def _plan_of(
    signature: Signature[Any], timing: Timing, missed: str, jitter: float, tags: Sequence[str]
) -> Plan:
    if is_canvas(signature):
        raise InvalidOption("signature", signature.task, "a plain task, which may start a canvas")
    if missed not in MISSED:
        raise InvalidOption("missed", missed, "one, none or all")
    if not _is_number(jitter) or not 0 <= jitter <= LONGEST_JITTER:
        raise InvalidOption("jitter", jitter, "a number of seconds from 0 to 86400")
    if isinstance(tags, str) or len(tags) >= MOST_TAGS:
        raise InvalidOption("tags", tags, f"up to {MOST_TAGS - 1} tags")
    try:
        text = text_of(signature)
    except (TypeError, ValueError) as error:
        raise InvalidOption("signature", str(error), "arguments that are JSON") from error
    key = str(signature.options.get(KEY) or "")
    given = (*tags, *(signature.options.get(TAGS) or ()))
    own = tuple(checked_name("tag", tag) for tag in dict.fromkeys(given))
    return Plan(text, timing, missed, float(jitter), own, key)


def rule(services: Services, name: str) -> Rule | None:
    """Return the rule of a name, or ``None``."""
    found = store.find(services.entries, _checked(name))
    return None if found is None or "r" in found.flags else _rule(services, found)


def rules(services: Services, *, tag: str | None = None) -> list[Rule]:
    """Return all rules, by name."""
    found = {stored.name: stored for stored in store.each(services.entries)}
    made = [_rule(services, found[name]) for name in sorted(found) if "r" not in found[name].flags]
    return [each for each in made if tag is None or tag in each.tags]


def _rule(services: Services, stored: Stored) -> Rule:
    plan = stored.plan
    now = from_ms(services.entries.counts().now_ms)
    return Rule(
        stored.name,
        plan.timing.text,
        plan.timing.zone,
        plan.signature_of(services.app).task,
        plan.tags,
        plan.missed,
        plan.jitter,
        stored.is_paused,
        () if stored.is_paused else tuple(stored.times(now, SHOWN)),
        stored.last,
        stored.revision,
        services,
    )


def _change(services: Services, name: str, what: str) -> bool:
    found = store.find(services.entries, name)
    if found is None:
        return False
    shard = services.entries.unasked_shards[found.shard]
    answer = store.change(shard, name, what)
    _settle(services, name)
    return answer == "done"


def _settle(services: Services, name: str) -> None:
    """Clear up what a rule wrote before its change, and write its next runs, as a scanner would."""
    for _ in range(2):
        found = store.find(services.entries, name)
        if found is None:
            return
        shard = services.entries.unasked_shards[found.shard]
        now = from_ms(services.entries.counts().now_ms)
        writing.look_at(services, shard, found, now)


def _checked(name: Any) -> str:
    with suppress(InvalidOption):
        if len(checked_name("name", name).encode()) <= LONGEST_NAME:
            return str(name)
    raise InvalidOption("name", name, f"text of 1 to {LONGEST_NAME} bytes, without NUL")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
