"""Dumps a store line by line: its waiting, in-flight and dead tasks, its pauses and its rules.

    sift, all records --> members --dump.lua, READ at a time--> entries as kept --> lines

It changes nothing, decodes no body, and holds Redis for some 3 ms at a time. Tasks come in the
order of insertion, each once. Those that come after the start are left out; those that leave
meanwhile may be in the dump or not. So pause a store before you move it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timezone
from importlib import metadata
from typing import Any

from ...core import clock
from ...core.errors import StoreError
from ...core.message.broker import Broker
from ...core.message.headers import DUE_HEADER
from ...core.message.outgoing import list_key
from ...core.services import HasServices, Services
from ...core.store import label_of
from ...core.store.calls import Shard
from ...core.store.entries import Entries
from ...core.store.keys import SCHEMA
from ...core.store.listing import store_of
from ...core.store.record import RELEASED, RUN_NOW, Facts, Record, State, facts_in
from ...core.store.selection import Filter, Position, begin
from ...operations.pauses import is_all_paused
from .. import rule_store
from .lines import (
    DUMP,
    END,
    FIELDS,
    FORMAT,
    LONGEST_ID,
    LONGEST_TEXT,
    PAUSE,
    RULE,
    TASK,
    UNREADABLE,
    Line,
    fault_in,
    fault_of,
    is_name,
    line_of,
)

READ = 100  # entries read in a step: some 3 ms of Redis's time
READ_BYTES = 1_000_000  # about as many bytes of records are read at a time
LOOK_AGAIN = 0.2  # seconds between two counts of the tasks in flight

_PACKAGE = "celery-delayq"
_UNREADABLE, _LOST = "unreadable", "lost"


@dataclass(frozen=True)
class Kept:
    """The store's data of one entry.

    Attributes:
        task_id: The task's id.
        facts: What the script tells of it, in the words of ``dump.lua``.
        record: The record; its text if it is unreadable.
        template: The template that it shares, if it shares an existing one.
    """

    task_id: str
    facts: Facts
    record: Record
    template: bytes | None

    @property
    def place(self) -> str:
        """``waiting``, ``paused``, ``refused``, ``behind``, ``in_flight`` or ``dead``.

        ``unreadable``, if this version cannot read its record; ``lost``, if that is gone.
        """
        return self.facts.word

    @property
    def is_readable(self) -> bool:
        return self.place not in (_UNREADABLE, _LOST)

    @property
    def message(self) -> bytes:
        """Its message.

        Raises:
            ValueError: it cannot be put together.
        """
        return self.record.message(self.task_id.encode(), self.template)


def now_ms(entries: Entries) -> int:
    """Redis's time."""
    return int(_step(entries.shards[0], []).now) // 1000


def owed(entries: Entries) -> int:
    """Return how many cancelled tasks still lack ``REVOKED``."""
    return sum(int(_step(shard, []).owed) for shard in entries.shards)


def kept_in(entries: Entries) -> Iterator[Kept]:
    """Yield all entries, shard by shard, in the order of insertion; those without a number first.

    Raises:
        StoreDiffers: the store was emptied meanwhile, and is another one now.
    """
    for shard in entries.shards:
        walk = begin(shard, Filter(whole=True))
        for members in walk.pages():
            yield from _read(shard, members)
        # A dead entry without its record is found only here.
        for members in replace(walk, chosen=Filter(states=(State.DEAD,))).pages():
            lost = [member for member in members if Position.of(member).number == 0]
            yield from (kept for kept in _read(shard, lost) if kept.place == _LOST)


def _read(shard: Shard, members: Sequence[bytes]) -> Iterator[Kept]:
    left = list(members)
    while left:
        some = left[:READ]
        step = _step(shard, some)
        templates, records = dict(step.templates), iter(step.found)
        words = step.words.split()
        for member, word in zip(some, words, strict=True):
            if word not in (b"gone", b"again"):
                facts = facts_in(word)
                record = Record(next(records), facts.header_end)
                template = templates.get(record.name) if facts.header_end else None
                yield Kept(member[6:].decode(errors="surrogateescape"), facts, record, template)
        left = left[len(words) - words.count(b"again") :]


def _step(shard: Shard, members: Sequence[bytes]) -> Any:
    return shard.scripts.call("dump", max_bytes=READ_BYTES, members=members)


def dump(delayq: HasServices) -> Iterator[dict[str, Any]]:
    """All tasks and pauses in the store, read as you iterate.

    It changes nothing. Tasks scheduled meanwhile are not included; tasks that leave meanwhile
    may be. So before you move a store, pause everything and stop scheduling.

    Returns:
        Dictionaries for ``json.dumps``: a header of ``kind`` ``dump``; one for each pause and
        task; and a footer of ``kind`` ``end``, with their number. A dump without its footer is
        incomplete.

    Raises:
        StoreDiffers: the store was emptied during the dump.
        kombu.exceptions.OperationalError: Redis cannot be reached.
    """
    services = delayq.services
    yield _first(services)
    for pause in services.entries.pauses():
        yield line_of(
            PAUSE,
            queue=pause.queue,
            task=pause.task,
            late=pause.late,
            since_ms=clock.to_ms(pause.since, timezone.utc),
            resumed=pause.resumed,
        )
    # Before the tasks: a run that is written meanwhile is written again after a load, with its id.
    yield from _rules(services)
    counts = {TASK: 0, UNREADABLE: 0}
    lent: set[str] = set()  # keys of tasks in flight; the first of two that comes back gets it
    queues = list(services.app.amqp.queues)
    for kept in kept_in(services.entries):
        line = _line_of(kept, services.broker, queues)
        counts[line["kind"]] += 1
        if line["state"] == "in_flight" and line.get("holds_key"):
            if line["key"] in lent:
                del line["holds_key"]
            lent.add(line["key"])
        yield line
    yield line_of(END, tasks=counts[TASK], unreadable=counts[UNREADABLE])


def wait_for_leases(services: Services, seconds: float) -> int:
    """Wait until nothing is being published; return how many tasks still are after the time."""
    until = clock.monotonic() + seconds
    while True:
        count = services.entries.counts().in_flight
        if not count or clock.monotonic() >= until:
            return count
        clock.sleep(LOOK_AGAIN)


def _rules(services: Services) -> Iterator[Line]:
    for rule in {rule.name: rule for rule in rule_store.each(services.entries)}.values():
        if not rule.is_removed:
            yield line_of(
                RULE,
                name=rule.name,
                **{name: rule.row[name] for name in ("digest", "home", "plan", "source", "by")},
                offset_ms=int(rule.row.get("offset", 0)),
                edit=rule.row.get("edit", ""),
                skipped=rule.row.get("skipped", ""),
                revision=rule.revision,
                last_ms=rule_store.ms_of(rule.last),
                since_ms=rule.since_ms,
                version=int(rule.row["version"]),
                app=str(rule.row.get("app", "")),
                declared=rule.is_declared,
                paused=rule.is_paused,
                new=rule.is_new,
                unclear=rule.is_unclear,
            )


def _first(services: Services) -> Line:
    services.entries.check_membership()  # afterwards, the number of shards is the store's
    entries, settings = services.entries, services.settings
    return line_of(
        DUMP,
        format=FORMAT,
        made_by=f"{_PACKAGE} {_version()}",
        schema=SCHEMA,
        store=store_of(entries.shards[0]),
        prefix=settings.prefix,
        shards=settings.shards,
        time_ms=now_ms(entries),
        paused=is_all_paused(services),
        in_flight=entries.counts().in_flight,
        owed=owed(entries),
    )


def _line_of(kept: Kept, broker: Broker, queues: Iterable[str]) -> Line:
    if not kept.is_readable:
        return _raw(kept, kept.facts.why or kept.facts.error)
    try:
        line = _described(kept, broker, queues)
        # A bad line would end a load, so an entry that no load could take is dumped as stored.
        fault = fault_of(line)
    except StoreError:
        raise
    except Exception as error:  # data that is not JSON, or has no text, fails in many ways
        fault = str(error) or type(error).__name__
    return _raw(kept, fault) if fault else line


def _described(kept: Kept, broker: Broker, queues: Iterable[str]) -> Line:
    record, place, facts = kept.record, kept.place, kept.facts
    data = record.extras.data()
    is_leased = place == "in_flight"
    message = _checked("message", json.loads(kept.message))
    message["headers"].pop(DUE_HEADER, None)  # the line has the due time
    route = _checked("route", _route_of(kept, message, broker))
    return line_of(
        TASK,
        id=kept.task_id,
        state=place,
        due_ms=record.due_ms,
        scheduled_us=record.created_us,
        **_names_of(kept, message, route, queues),
        key=data.pop("key"),
        holds_key=facts.has_key,
        **data,
        expires_after_ms=record.expires_ms,
        run_now=bool(record.flags & RUN_NOW),
        released=bool(record.flags & RELEASED),
        # The result of an attempt under way is unknown, as after an expired lease.
        attempts=facts.attempts + is_leased,
        refusals=facts.refusals,
        may_be_delivered=facts.is_uncertain or is_leased,
        next_try_ms=facts.next_try_ms if place == "refused" else None,
        dead_since_ms=facts.since_ms,
        error=facts.error[:LONGEST_TEXT],
        route=route,
        message=message,
    )


def _checked(name: str, value: Any) -> dict[str, Any]:
    fault = fault_in(FIELDS[TASK], name, value)
    if fault:
        raise ValueError(fault)
    checked: dict[str, Any] = value
    return checked


def _route_of(kept: Kept, message: dict[str, Any], broker: Broker) -> Any:
    place = kept.record.destination
    if not kept.record.is_for_list:
        return json.loads(place)
    info = message["properties"].get("delivery_info")
    queue = info.get("routing_key") if isinstance(info, dict) else None
    if not isinstance(queue, str):
        return {"queue": None, "list": place}
    priority = message["properties"].get("priority")
    key = broker.options.get("global_keyprefix", "") + list_key(queue, priority, broker.options)
    # A list that belongs to none of this app's queues has no queue to name elsewhere.
    return {"queue": queue if key == place else None, "list": place}


def _names_of(
    kept: Kept, message: dict[str, Any], route: Mapping[str, Any], queues: Iterable[str]
) -> dict[str, str]:
    """Return the names that selections filter by, or their hashes if the names are unknown."""
    declared = [
        entity.get("name") for entity in route.get("declare", ()) if isinstance(entity, dict)
    ]
    known = {
        "task": [message["headers"].get("task", ""), ""],
        "queue": [route.get("queue"), route.get("routing_key"), *declared, *queues, ""],
    }
    found: dict[str, str] = {}
    for (what, names), label in zip(known.items(), kept.record.labels, strict=True):
        named = (name for name in names if is_name(name) and label_of(name) == label)
        own = next(named, None)
        found.update({f"{what}_hash": label.hex()} if own is None else {what: own})
    return found


def _raw(kept: Kept, why: str) -> Line:
    """Return the line of an unreadable entry, with its data as stored."""
    task_id = kept.task_id.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return line_of(
        UNREADABLE,
        id=task_id[:LONGEST_ID],
        state=kept.place,
        reason=why.encode(errors="backslashreplace").decode()[:LONGEST_TEXT],
        record=base64.b64encode(kept.record.text).decode(),
        template=base64.b64encode(kept.template or b"").decode(),
    )


def _version() -> str:
    try:
        return metadata.version(_PACKAGE)
    except metadata.PackageNotFoundError:  # it was copied, not installed
        return "of no known version"
