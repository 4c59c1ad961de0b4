"""Sets a rule.

every(...) --checked--> a row --put--> the runs of the rule before are cleared up

A writer makes the first run: only that calls code of the user, such as routers and receivers of
signals. What it raises is the rule's trouble.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from celery.app.task import Task
from celery.canvas import Signature

from ...core.errors import InvalidOption
from ...core.message.body import signature_of
from ...core.services import HasServices, Services
from ...core.text import logger_of
from .. import rule_store as store
from ..rule_store import MOST_RULES, NEW, PAUSED, Stored, said_of
from .face import Rule, checked, named, settle, unwritten
from .plan import Plan, Taken, checked_plan, timing_of

MOST_VERSION = 10**12

_ALTERNATES = (
    "rule %s: this process, on %s, and one on %s set different rules under this name, and the last "
    "one wins; pass version= to decide"
)
_STAYS = (
    "rule %s stays as living workers say it, one on %s among them; this process, on %s, says "
    "another plan; pass a higher version= or replace=True to change the rule now"
)
_TWICE = (
    "a name that this process has given to no other rule; pass replace=True to change that rule"
)

# What persons changed goes along if a rule moves to another shard.
_OF_PERSONS = ("edit", "skipped")

_WARNED = set[tuple[str, str]]()

logger = logger_of(__name__)


def every(
    delayq: HasServices,
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
    return set_rule(
        delayq.services,
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


def set_rule(
    services: Services,
    name: str,
    signature: Signature[Any] | Task[..., Any],
    schedule: Any,
    *,
    replace: bool = False,
    settles: bool = True,
    taken: Taken | None = None,
    **facts: Any,
) -> Rule:
    """Set a rule; see :meth:`DelayQ.every`, and :func:`row_of` for the *facts*.

    Beside its arguments, *taken* is the entry of beat that it takes over. Without *settles* a
    writer clears up the runs of the rule before: to cancel them asks the result backend, and calls
    receivers of signals.
    """
    row = row_of(services, name, signature, schedule, **facts)
    if store.ONLY_NOTED.get() and not row["source"]:
        _note(services, name, row)
        return unwritten(services, name, row)
    before, may_replace = store.find(services.entries, name), replace or bool(row["source"])
    if before is None or before.digest != row["digest"]:
        _check_change(services, name, before, may_replace=may_replace)
    say(services, name, row, before, taken=taken, replaces=may_replace, settles=settles)
    if not row["source"]:
        _note(services, name, row)
    # One of a later release stays if it says the same, or has a later version.
    made = named(services, name, row["plan"])
    if made is None:
        raise InvalidOption("name", name, "the name of a rule that nobody removes meanwhile")
    return made


def row_of(
    services: Services,
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
    declared: bool = True,
    source: str = "",
    is_paused: bool = False,
) -> dict[str, str]:
    """Return the row of a rule, for the arguments of :meth:`DelayQ.every`.

    Beside them, *source* says where it comes from, and with *is_paused* a new one waits for
    ``resume``.
    """
    checked(name)
    _check(version, declared)
    timing = timing_of(schedule, tz=tz, dialect=dialect, default_zone=str(services.timezone))
    if services.app.conf.task_always_eager:
        raise InvalidOption("task_always_eager", True, "False, as with it a task runs at once")
    plan = checked_plan(signature_of(signature, services.app), timing, missed, jitter, tags)
    row = {
        "digest": plan.digest,
        "version": str(version),
        "by": socket.gethostname(),
        "source": source,
        "app": app_of(services),
        "home": plan.key or name,
        "plan": plan.text,
        "offset": str(plan.offset(name) // timedelta(milliseconds=1)),
        "flags": f"-{NEW}{PAUSED * is_paused}",
    }
    return row if declared else {**row, "declared": ""}


def say(
    services: Services,
    name: str,
    row: Mapping[str, str],
    before: Stored | None,
    *,
    taken: Taken | None = None,
    replaces: bool = False,
    settles: bool = False,
    living: Mapping[str, set[str]] | None = None,
) -> str:
    """Set the rule of a row, in place of the one that was there *before*.

    Without *replaces*, one that living workers declare stays if its version is no lower. What these
    name is *living*, if the caller knows it.

    Returns:
        The answer of ``rule.lua``; or ``moved``, from another shard; or ``stays``.
    """
    if before is not None and not before.is_removed and before.digest != row["digest"]:
        if before.version > int(row["version"]):
            return "older"
        if not replaces and before.is_declared and before.version == int(row["version"]):
            living = store.name(services.entries).living if living is None else living
            if before.digest in living.get(name, ()):
                _say_once(_STAYS, name, before.row["by"], row["by"])
                return "stays"
    if taken is not None:
        row = {**row, **_beginning(services, name, row, before, taken)}
    answer = _put(services, name, row, before)
    if answer != "same" and settles:
        settle(services, name)
    return answer


def _beginning(
    services: Services, name: str, row: Mapping[str, str], before: Stored | None, taken: Taken
) -> dict[str, str]:
    """Return the fields of its row that say where a rule begins that takes over from beat."""
    plan = Plan.read(row["plan"])
    if before is not None and not before.is_removed:
        taken = Taken()  # the rule knows its last run, and beat may not
        with suppress(ValueError):
            if Plan.read(before.row["plan"]).timing == plan.timing:
                return {"offset": str(before.row.get("offset", "0"))}
    now = store.now(store.shard_for(services.entries, plan.key or name))
    return taken.beginning(plan.timing, plan.offset(name), now)


def app_of(services: Services) -> str:
    """Return the name of an app: others may have rules in the same store."""
    return str(services.app.main or "")


def _check(version: Any, declared: Any) -> None:
    if not isinstance(version, int) or isinstance(version, bool) or not 0 <= version < MOST_VERSION:
        raise InvalidOption("version", version, f"a whole number from 0 to {MOST_VERSION - 1}")
    if not isinstance(declared, bool):
        raise InvalidOption("declared", declared, "true or false")


def _note(services: Services, name: str, row: dict[str, str]) -> None:
    """Note what this process has said, as it may turn out to be a worker."""
    said = said_of(services)
    said.digests[name] = row["digest"]
    if not said.is_over:
        said.rows.pop(name, None)
        if "declared" not in row:
            said.rows[name] = row


def _check_change(
    services: Services, name: str, before: Stored | None, *, may_replace: bool
) -> None:
    if before is None or before.is_removed or may_replace:
        return
    if said_of(services).digests.get(name) == before.digest:
        raise InvalidOption("name", name, _TWICE)


def _put(services: Services, name: str, row: Mapping[str, str], before: Stored | None) -> str:
    """Set a rule; return the answer of ``rule.lua``, or ``moved``: from another shard."""
    shards, home = services.entries.unasked_shards, store.shard_for(services.entries, row["home"])
    has_moved = before is not None and before.shard != home.number  # it has another key
    if before is not None and has_moved:
        if not before.is_removed:
            kept = {name: before.row[name] for name in _OF_PERSONS if name in before.row}
            row = {**row, **kept}
        store.change(shards[before.shard], name, "move", json.dumps({**row}))
    answer = store.put(services.entries, "put", name, row, has_moved=has_moved)[1]
    for other in store.find_all(services.entries, name)[1:]:
        store.change(shards[other.shard], name, "remove")
    if answer == "full":
        raise InvalidOption("name", name, f"one of at most {MOST_RULES:,} rules; remove some first")
    if answer == "back" and before is not None:
        _say_once(_ALTERNATES, name, row["by"], before.row["by"])
    return "moved" if has_moved else answer


def _say_once(text: str, name: str, *hosts: str) -> None:
    if (text, name) not in _WARNED:
        logger.warning(text, name, *hosts)
        _WARNED.add((text, name))
