"""Loads a dump: restores its tasks as they were, slice by slice.

    lines --checked--> entries as this app's store keeps them --SLICE at a time--> the store
                              |                                  loaded, here already, left since,
                              +-- this app cannot take it        or in another task's way

Loading the same dump again adds nothing: an entry is known by its id and the time of its
scheduling. So after an interruption, the same call continues. Tasks that have left are known while
the store has their tombstones, as ``delayq_remember`` says. A paused store delivers nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from kombu import Queue

from ...core.errors import (
    AlreadyScheduled,
    DelayQError,
    InvalidDump,
    InvalidOption,
    MessageTooLarge,
    NotLoaded,
)
from ...core.message.headers import EXPIRES_HEADER
from ...core.message.outgoing import OutgoingMessage, Route, header_of, list_header, record_of
from ...core.services import HasServices, Services
from ...core.store import label_of, lane_for
from ...core.store.entries import OldEntry, restore
from ...core.store.record import (
    NO_FLAGS,
    RELEASED,
    RUN_NOW,
    Extras,
    NewRecord,
    lanes_of,
)
from ...operations.pauses import is_all_paused
from .. import rule_store
from . import dump
from .lines import DUMP, PAUSE, RULE, TASK, UNREADABLE, GivenLine, Line, bounded, read

SLICE = 100  # tasks of one call: some 3 ms of Redis's time
SLICE_BYTES = 500_000  # about as many bytes of lines in one call
# How much longer a line may be than its message: JSON takes up to six characters a byte.
LONGER, BESIDE = 6, 1_000_000
_ID_TAKEN = "another task has its id here"
_KEY_TAKEN = "task {!r} has its unique key here"
_NO_QUEUE = "this app has no queue {!r}; add it to task_queues"
_NO_LIST = "it goes to the list {!r} of an unknown queue"
# The places that are restored, and the field with the time of each. A paused task falls due again
# and meets the pause; one that was in flight waits, marked as possibly delivered.
_TIMES = {"refused": "next_try_ms", "behind": "due_ms", "dead": "dead_since_ms"}

Lines = Iterable[GivenLine]


@dataclass
class Loaded:
    """The result of loading a dump.

    Attributes:
        loaded: How many tasks were written; in a dry run, how many could be read.
        here: How many of the same tasks were here already.
        left: How many had left this store since they were scheduled, and do not come back.
        skipped: With ``skip_existing``, how many another task's id or key kept out.
        refused: Why others were not loaded.
        unreadable: The ids of the tasks that the dump has as unreadable, and why.
    """

    loaded: int = 0
    here: int = 0
    left: int = 0
    skipped: int = 0
    refused: list[DelayQError] = field(default_factory=list)
    unreadable: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: Loaded) -> None:
        """Add the results of further tasks."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def __bool__(self) -> bool:
        return not self.refused and not self.unreadable


def load(
    delayq: HasServices,
    lines: Lines,
    *,
    skip_existing: bool = False,
    paused: bool = False,
    dry_run: bool = False,
    progress: Callable[[Loaded], object] | None = None,
) -> Loaded:
    """Load a :meth:`dump`, with its ids, due times, keys, tags, attempts and dead tasks.

    It first restores the pauses. Messages are routed for this app's broker. A task that is
    already here stays as it is, and a task that has left this store since it was scheduled does
    not come back. So you can repeat the same call: at any time while the store is paused, and
    otherwise as long as ``delayq_remember`` says.

    Args:
        lines: The output of :meth:`dump`, or the same as lines of JSON, or an open file of
            them. Consumed in slices of 100.
        skip_existing: Skip tasks whose id or key belongs to another task waiting here.
        paused: First pause everything.
        dry_run: Only count the readable tasks; do not check whether their ids and keys are
            taken.
        progress: Called after each slice with the ``Loaded`` so far.

    Returns:
        How many tasks were ``loaded``, are ``here`` already, had ``left`` or were ``skipped``;
        why others were ``refused``; and which were ``unreadable`` when they were dumped. It is
        true if none was refused or unreadable.

    Raises:
        InvalidDump: it is not a dump, is cut off, or has a damaged line. The lines before that
            are loaded.
        kombu.exceptions.OperationalError: Redis cannot be reached. Loaded tasks stay.
    """
    whole = Loaded()
    options = {"skip_existing": skip_existing, "paused": paused, "dry_run": dry_run}
    for part in steps(delayq.services, lines, **options):
        whole.add(part)
        if progress is not None:
            progress(whole)
    return whole


def steps(
    services: Services,
    lines: Lines,
    moving: Callable[[], object] | None = None,
    /,
    **options: bool,
) -> Iterator[Loaded]:
    """Load a dump while you iterate; yield the results of each slice.

    Calls *moving* before the first write, unless everything is paused by then.

    Raises:
        InvalidDump: it is no dump, is truncated, or has a damaged line. Earlier tasks are loaded.
        StoreError: tasks that were loaded before stay.
    """
    loading = _Loading(services, moving, **options)
    longest = LONGER * services.settings.max_message + BESIDE
    try:
        for number, line in read(bounded(lines, longest)):
            loading.take(number, line)
            if loading.is_full:
                yield loading.write()
    except InvalidDump:
        yield loading.write()
        raise
    yield loading.write()


class _Loading:
    """The tasks of a dump that were read and are not written yet."""

    def __init__(
        self,
        services: Services,
        moving: Callable[[], object] | None,
        *,
        skip_existing: bool = False,
        paused: bool = False,
        dry_run: bool = False,
    ) -> None:
        self._services = services
        self._moving = moving  # called if the store is not paused
        self._skip_existing = skip_existing
        self._paused = paused
        self._dry_run = dry_run
        self._entries: list[OldEntry] = []
        self._bytes = 0
        self._loaded = Loaded()
        self._late: set[bytes] = set()  # lanes whose pause counts as lateness in the dump
        self._excused: set[bytes] = set()  # lanes that are resuming there and whose pause does not
        self._now_ms: int | None = None  # when this slice began

    @property
    def is_full(self) -> bool:
        return len(self._entries) >= SLICE or self._bytes >= SLICE_BYTES

    def take(self, number: int, line: Line) -> None:
        """Take a line, to be written with its slice."""
        if line["kind"] == DUMP and self._paused:
            self._pause(None, None)
        elif line["kind"] == PAUSE:
            if line["queue"] and line["task"]:
                raise InvalidDump(number, "it has a queue and a task; expected one of them")
            self._pause(line["queue"], line["task"], late=line["late"], resumed=line["resumed"])
        elif line["kind"] == RULE:
            self._rule(line)
        elif line["kind"] == UNREADABLE:
            self._loaded.unreadable.append((line["id"], line["reason"]))
        elif line["kind"] == TASK:
            self._task(line)

    def write(self) -> Loaded:
        """Write the lines taken; return the results."""
        entries, loaded = self._entries, self._loaded
        self._entries, self._bytes, self._loaded, self._now_ms = [], 0, Loaded(), None
        if self._dry_run:
            loaded.loaded += len(entries)
        elif entries:
            if self._moving is not None and not is_all_paused(self._services):
                self._moving()
            self._moving = None
            for answer in restore(self._services.entries, entries):
                self._count(loaded, answer)
        return loaded

    def _count(self, loaded: Loaded, answer: str | DelayQError) -> None:
        if isinstance(answer, str):
            setattr(loaded, answer, getattr(loaded, answer) + 1)
        elif not isinstance(answer, AlreadyScheduled):
            loaded.refused.append(answer)
        elif self._skip_existing:
            loaded.skipped += 1
        else:
            why = _KEY_TAKEN.format(answer.holder) if answer.holder else _ID_TAKEN
            loaded.refused.append(NotLoaded(answer.task_id, why))

    def _pause(
        self, queue: str | None, task: str | None, *, late: bool = False, resumed: bool = False
    ) -> None:
        lane = lane_for(queue, task)
        if late:
            self._late.add(lane)
        elif resumed:
            self._excused.add(lane)
        # A lane that is resuming has no pause any more.
        if not (self._dry_run or resumed or lane in self._paused_here):
            self._services.entries.pause(lane, queue or task or "", late=late)

    def _task(self, line: Line) -> None:
        try:
            entry = self._entry_of(line)
        except DelayQError as error:
            self._loaded.refused.append(error)
        else:
            self._entries.append(entry)
            self._bytes += entry.record.size

    def _rule(self, line: Line) -> None:
        """Load a rule; the runs of one that is here as well are cleared up, as the dump has others.

        Its last slot comes along, so no slot of before is written again.
        """
        if why := rule_store.newer(line["plan"]):
            self._loaded.refused.append(NotLoaded(line["name"], f"the rule cannot be read: {why}"))
        if why or self._dry_run:
            return
        flags = "".join(
            flag for flag, has in (("n", "new"), ("p", "paused"), ("c", "unclear")) if line[has]
        )
        row = {name: line[name] for name in ("digest", "home", "plan", "source", "by", "app")}
        row |= {"revision": str(line["revision"]), "last": str(line["last_ms"])}
        row |= {
            "offset": str(line["offset_ms"]),
            "since": str(line["since_ms"]),
            "version": str(line["version"]),
        }
        row["flags"] = f"-{flags}"
        if line["declared"]:
            row["declared"] = "1"
        row |= {name: line[name] for name in ("edit", "skipped") if line[name]}
        entries = self._services.entries
        shard, answer = rule_store.put(entries, "load", line["name"], row)
        if answer == "full":
            why = f"there are {rule_store.MOST_RULES:,} rules here"
            self._loaded.refused.append(NotLoaded(line["name"], why))
        for rule in rule_store.named(shard, [line["name"].encode()]):
            if answer == "changed" and rule.is_unclear:
                rule_store.clear(self._services, shard, rule)

    @cached_property
    def _paused_here(self) -> set[bytes]:
        """The lanes that were paused before the load."""
        found = self._services.entries.pauses()
        return {lane_for(pause.queue, pause.task) for pause in found if not pause.resumed}

    def _entry_of(self, line: Line) -> OldEntry:
        settings = self._services.settings
        if line["state"] == "paused" and line["grace_ms"] is not None and self._excuses(line):
            line = {**line, "excused_ms": max(line["excused_ms"], self._now())}
        record = _record_of(self._services, line)
        # Its tags and key did not count when it was scheduled, nor did the headers of an adopted
        # message: every way in measures only the body.
        if record.size > settings.max_message < (size := least_size(line["message"])):
            raise MessageTooLarge(line["id"], size, settings.max_message)
        place = line["state"] if line["state"] in _TIMES else "waiting"
        return OldEntry(
            line["id"],
            line["due_ms"],
            line["scheduled_us"],
            record,
            place=place,
            when_ms=line[_TIMES[place]] if place in _TIMES else 0,
            attempts=line["attempts"],
            refusals=line["refusals"],
            uncertain=line["may_be_delivered"],
            error=line["error"],
            is_named=line["holds_key"],
        )

    def _excuses(self, line: Line) -> bool:
        """Whether its lateness counts from now, as after a ``resume``."""
        lanes = lanes_of(_labels(line))
        return bool(lanes & self._excused) or not lanes & self._late

    def _now(self) -> int:
        if self._now_ms is None:
            self._now_ms = dump.now_ms(self._services.entries)
        return self._now_ms


def least_size(message: Mapping[str, Any]) -> int:
    """Return the bytes of a message that every way into a store counts: its decoded body."""
    size = len(message["body"])
    return size * 3 // 4 if message["properties"].get("body_encoding") == "base64" else size


def _record_of(services: Services, line: Line) -> NewRecord:
    """Make the record of an entry.

    Raises:
        NotLoaded: this app does not know its destination.
    """
    message = {**line["message"], "headers": dict(line["message"]["headers"])}
    try:
        header = _header(services, message, line["route"])
    except (InvalidOption, LookupError) as error:
        why = str(error) if isinstance(error, InvalidOption) else str(error.args[0])
        raise NotLoaded(line["id"], why) from error
    if line["expires_after_ms"] is not None:
        message["headers"][EXPIRES_HEADER] = line["expires_after_ms"]
    extras = Extras.of(line)
    flags = extras.flags + RUN_NOW * line["run_now"] + RELEASED * line["released"]
    record = record_of(message, header, _labels(line, flags), share=_is_shareable(line))
    return replace(record, body=record.body + extras.text())


def _header(services: Services, message: dict[str, Any], route: Mapping[str, Any]) -> bytes:
    """Determine its destination anew, as a list of one broker means nothing to another."""
    queues, direct = services.app.amqp.queues, services.store_is_broker
    prefix, queue, given = services.settings.prefix, route.get("queue"), None
    if "exchange" in route:
        known, given = Route.parse(json.dumps(route)), route
        where = (known.exchange, known.routing_key, known.declare)
    elif queue is not None:
        where = ("", queue, _declared(queues, queue, direct=direct))
    elif direct:
        return list_header(route["list"], prefix, route["list"])
    else:
        raise LookupError(_NO_LIST.format(route["list"]))
    outgoing = OutgoingMessage(message, *where, payload=None, encode=str)
    return header_of(outgoing, services.broker, queues, direct=direct, prefix=prefix, route=given)


def _declared(queues: Mapping[str, Queue], name: str, *, direct: bool) -> tuple[Queue, ...]:
    """The queue as Celery would declare it; a list needs no declaration.

    Raises:
        LookupError: the app has no such queue, and creates none.
    """
    if direct and name not in queues:
        return ()
    try:
        return (queues[name],)
    except KeyError:
        raise LookupError(_NO_QUEUE.format(name)) from None


def _labels(line: Line, flags: int = 0) -> bytes:
    return b"%c" % (NO_FLAGS[0] + flags) + _label(line, "task") + _label(line, "queue")


def _label(line: Line, what: str) -> bytes:
    if line[what] or not line[f"{what}_hash"]:
        return label_of(line[what])
    return bytes.fromhex(line[f"{what}_hash"])


def _is_shareable(line: Line) -> bool:
    """Whether a record that shares a template restores exactly this message."""
    task_id, message = line["id"], line["message"]
    if line["released"] or message["headers"].get("id") != task_id:
        return False
    tag = message["properties"].get("delivery_tag")
    return bool(tag == f"{task_id}{line['scheduled_us']:016d}")
