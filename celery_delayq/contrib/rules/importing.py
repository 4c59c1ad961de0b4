"""Rules from the entries of another scheduler.

    from_redbeat, from_django --> entries --plan--> steps --carry_out--> rules

Its own entries stay as they are. A rule becomes as its entry is, also paused or not, so to import
the same again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from celery.canvas import Signature
from celery.schedules import crontab

from ...core.errors import InvalidOption, StoreError
from ...core.services import Services
from .. import rule_store as store
from . import face
from .every import checked_plan, every
from .timing import Timing, timing_of

NEW, CHANGED, SAME, SKIPPED, REFUSED = "new", "changed", "same", "skipped", "refused"
FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
_CLEANUP = "celery.backend_cleanup"
_OF_CELERY = "it comes from beat_schedule or Celery; delayq_beat takes it over"


@dataclass(frozen=True)
class Entry:
    """An entry of another scheduler.

    Attributes:
        name: Its name.
        task: The name of its task.
        kind: The kind of its schedule, as its scheduler calls it.
        signature: Its task, with arguments and options; ``None`` if it is refused.
        schedule: When it fires; ``None`` if no rule can have that.
        tz: The zone of the fields; ``None``: the app's.
        is_enabled: Whether it fires.
        refused: Why no rule can be made of it; or empty.
    """

    name: str
    task: str = ""
    kind: str = ""
    signature: Signature[Any] | None = None
    schedule: timedelta | crontab | None = None
    tz: str | None = None
    is_enabled: bool = True
    refused: str = ""

    def but(self, refused: str) -> Entry:
        """Return it refused: for the first reason that was found."""
        return replace(self, refused=self.refused or refused)

    def calling(self, app: Any, args: Any, kwargs: Any, options: Any) -> Entry:
        """Return it with its signature, or refused."""
        entry = self.but(_wrong_call(self.task, args, kwargs, options))
        if entry.refused:
            return entry
        signature = app.signature(self.task, args, kwargs, options=options)
        return replace(self, signature=signature)


def _wrong_call(task: str, args: Any, kwargs: Any, options: Any) -> str:
    if not task:
        return "it has no task"
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        return "its arguments are not a JSON list and a JSON object"
    if not isinstance(options, dict):
        return "its options are no JSON object"
    expires = options.get("expires")
    if expires is not None and (not isinstance(expires, (int, float)) or expires is True):
        return "its expires is a fixed time; set seconds, which count from each run"
    if delays := sorted({"eta", "countdown"} & {*options}):
        return f"its runs have a delay of their own, {delays[0]}"
    return ""


@dataclass(frozen=True)
class Step:
    """A step of an import: an entry, and its result.

    Attributes:
        entry: The entry.
        word: ``new``, ``changed``, ``same``, ``skipped`` or ``refused``.
        why: Why it is skipped or refused.
        timing: The times of its rule.
    """

    entry: Entry
    word: str
    why: str = ""
    timing: Timing | None = None


def plan(services: Services, source: str, entries: Iterable[Entry]) -> Iterator[Step]:
    """Yield what would become of entries; it writes nothing.

    Raises:
        StoreError: the store or the scheduler's Redis cannot be read.
    """
    seen = set[str]()
    for entry in entries:
        found = entry
        if entry.name in seen and not entry.refused:
            found = replace(entry, refused="another entry has this name")
        seen.add(entry.name)
        yield _or_refused(found, partial(_plan, services, source, found))


def carry_out(services: Services, source: str, step: Step) -> Step:
    """Make the rule of a step; return what became of it."""
    if step.word not in (NEW, CHANGED):
        return step
    return _or_refused(step.entry, partial(_carry_out, services, source, step))


def _or_refused(entry: Entry, make: Callable[[], Step]) -> Step:
    """Return the step that *make* returns; its error refuses the entry, and no other one."""
    if entry.refused:
        return Step(entry, REFUSED, entry.refused)
    try:
        return make()
    except StoreError:
        raise
    except Exception as error:  # Celery's schedules may raise anything
        return Step(entry, REFUSED, str(error) or type(error).__name__)


def _plan(services: Services, source: str, entry: Entry) -> Step:
    if not 1 <= len(entry.name.encode(errors="replace")) <= face.LONGEST_NAME:
        return Step(entry, REFUSED, f"its name is no text of 1 to {face.LONGEST_NAME} bytes")
    if entry.name in {*(services.app.conf.beat_schedule or ()), _CLEANUP}:
        return Step(entry, SKIPPED, _OF_CELERY)
    rule, before = face.rule(services, entry.name), store.find(services.entries, entry.name)
    # A rule that is set in code, or by another import, is not this import's to change.
    if rule is not None and rule.source != source:
        raise InvalidOption("name", entry.name, "a name that no rule of another source has")
    zone = str(services.timezone)
    timing = timing_of(entry.schedule, tz=entry.tz, default_zone=zone)
    made = checked_plan(_signature_of(entry), timing, "one", 0, [])
    if rule is None or before is None or before.digest != made.digest:
        return Step(entry, CHANGED if rule else NEW, timing=timing)
    is_same = rule.is_paused is not entry.is_enabled
    return Step(entry, SAME if is_same else CHANGED, timing=timing)


def _carry_out(services: Services, source: str, step: Step) -> Step:
    entry = step.entry
    before = face.rule(services, entry.name)
    if before is not None and not entry.is_enabled:
        before.pause()  # before it has another schedule, or a run of that might leave
    rule = every(
        services,
        entry.name,
        _signature_of(entry),
        entry.schedule,
        tz=entry.tz,
        source=source,
        is_paused=not entry.is_enabled,
    )
    if entry.is_enabled:
        rule.resume()
    return step


def _signature_of(entry: Entry) -> Signature[Any]:
    if entry.signature is None:
        raise InvalidOption("signature", None, "the task of the entry")
    return entry.signature


def crontab_of(fields: Mapping[str, Any]) -> crontab:
    """Return Celery's crontab of fields; one that is missing is ``*``.

    Raises:
        Exception: Celery cannot read a field.
    """
    return crontab(**{name: fields.get(name, "*") for name in FIELDS})
