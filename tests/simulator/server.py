"""The real Redis: it runs a request at the world's time, and shows what is there afterwards."""

import math
import re
from dataclasses import dataclass, field
from typing import Any

import redis

from celery_delayq.servers import packed
from celery_delayq.store.record import RELEASED, RUN_NOW, Record
from tests.simulator.network import Request
from tests.simulator.world import SECOND, World
from tests.store.support import CLOCK, INDEXES, LANE, Store

START_US = 1_800_000_000 * SECOND  # what Redis's clock shows when the world begins
QUEUE = "celery"
EDITED = re.compile(rb"edit:([\w.]+);")
GONE = "gone"  # where an id is that is not in the store
WAITING = ("due", "relay", "refused", "parked")
NAME = re.compile(rb"call:([\w.]+);")  # in the message: the call that scheduled it


# Of what is delivered: the due time, and the name of the call that edited it last.
Version = tuple[int, str]


@dataclass(frozen=True)
class View:
    """An entry as it stands in the store."""

    name: str  # of the call that scheduled it
    due_ms: int
    key: str
    tags: tuple[str, ...]
    created_ms: int
    runs_now: bool
    last_ms: float  # until when it may leave
    edited: str  # the name of the call that did so last
    is_released: bool
    since_ms: int  # that its lateness counts from

    @property
    def version(self) -> Version:
        return self.due_ms, self.edited


@dataclass
class Sight:
    """What there is: entries by id, and messages that came into the queue since the last look.

    Attributes:
        raw: Of each id its record, and its places with their scores.
        holders: The id that has each key.
        tagged: Members of the index of tags: tag, and id.
        owed: The ids whose ``REVOKED`` is still to be stored.
        paused: Lanes, by their first letters, with p (paused) or b (comes back).
    """

    views: dict[str, View] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict)
    arrived: list[bytes] = field(default_factory=list)
    holders: dict[str, str] = field(default_factory=dict)
    tagged: list[tuple[str, str]] = field(default_factory=list)
    owed: set[str] = field(default_factory=set)
    paused: dict[str, str] = field(default_factory=dict)

    def place(self, task_id: str | None) -> str:
        parts = self.raw.get(task_id)
        return parts[1][0] if parts and len(parts) > 1 else GONE

    def waits(self, task_id: str | None) -> bool:
        return self.place(task_id) in WAITING


class Lab:
    """A Redis of the suite's own, and connections to it; emptied for each world."""

    def __init__(self, redis_server: Any):
        self.store = Store(redis_server)
        self._connection, self._ears = self._new(), self._new()
        self._channels: set[str] = set()

    def _new(self) -> Any:
        where = self.store.endpoint
        return where.connection_class()(**where.options(timeout=30))

    def ask(self, *commands: bytes) -> list[Any]:
        """Send commands together; of one that fails, its error is among the answers."""
        self._connection.send_packed_command([b"".join(commands)])
        return [self._answer() for _ in commands]

    def _answer(self) -> Any:
        try:
            return self._connection.read_response(disable_decoding=True)
        except redis.ResponseError as error:
            return error

    def subscribe(self, *channels: str) -> None:
        for channel in sorted(set(channels) - self._channels):
            self._ears.send_command("SUBSCRIBE", channel)
            self._ears.read_response()
            self._channels.add(channel)

    def unsubscribe(self, *channels: str) -> None:
        for channel in sorted(self._channels.intersection(channels)):
            self._ears.send_command("UNSUBSCRIBE", channel)
            while self._ears.read_response()[0] != b"unsubscribe":
                pass  # a word that was on its way
            self._channels.remove(channel)

    def forget_channels(self) -> None:
        self.unsubscribe(*self._channels)

    def published(self) -> list[str]:
        """The channels that something was published to since the last look, in order."""
        channels = []
        # Behind all that was published stands the answer to this.
        self._ears.send_command("PING")
        while (told := self._ears.read_response())[0] == b"message":
            channels.append(told[1].decode())
        return channels

    def close(self) -> None:
        self._ears.disconnect()
        self._connection.disconnect()
        self.store.close()


class Server:
    """That Redis in one world."""

    def __init__(self, world: World, lab: Lab, *, drift: float):
        lab.store.raw.flushall()
        self._lab = lab
        self._world = world
        self._ahead_us = START_US
        self._rate = 1 + world.decisions.dice("redis").uniform(-drift, drift)
        self.store = lab.store
        self.keys = self.store.keys
        self._entries = self.store.entries
        self._queued = 0
        self.sight = Sight()
        self._set_clock()

    @property
    def now_us(self) -> int:
        return self._ahead_us + round(self._world.now_us * self._rate)

    @property
    def now_ms(self) -> int:
        return self.now_us // 1000

    def step_clock(self, us: int) -> None:
        self._ahead_us += us
        self._world.say("redis", f"its clock is set {us / SECOND:+.6f} s")

    def forget_scripts(self) -> None:
        self._world.say("redis", "forgets its scripts")
        self.store.raw.script_flush()

    def run(self, request: Request) -> Any:
        """What Redis answers; an error is returned, not raised."""
        _, reply, *rest = self._lab.ask(
            _text("SET", CLOCK, self.now_us), request.text, *self._look()
        )
        self.sight = self._seen(rest)
        return reply

    def findings(self) -> list[str]:
        """What the package's own check says of the store.

        What comes back from a lease waits without its key while another has that; when that one has
        left, nobody has it, until somebody repairs it.
        """
        self._set_clock()
        found = [one for one in self._entries.check() if one.kind != "entry_without_key"]
        return sorted(map(str, found))

    def _set_clock(self) -> None:
        self.store.raw.set(CLOCK, self.now_us)

    def _look(self) -> list[bytes]:
        commands: list[tuple[Any, ...]] = [("HGETALL", self.keys["records"])]
        commands.append(("HGETALL", self.keys["holders"]))
        commands.append(("ZRANGE", self.keys["tags"], 0, -1))
        commands.append(("HKEYS", self.keys["outbox_messages"]))
        commands.append(("HGETALL", self.keys["paused"]))
        commands += [("ZRANGE", self.keys[name], 0, -1, "WITHSCORES") for name in INDEXES]
        commands.append(("LRANGE", QUEUE, 0, -(self._queued + 1)))
        return [_text(*one) for one in commands]

    def _seen(self, answers: list[Any]) -> Sight:
        records, holders, tags, owed, paused, *places, arrived = answers
        self._queued += len(arrived)
        raw: dict[str, Any] = {}
        for task_id, record in _pairs(records):
            raw[task_id.decode()] = [record]
        for index, rows in zip(INDEXES, places, strict=True):
            for member, score in _pairs(rows):
                raw.setdefault(_id_in(index, member), [None]).append((index, score))
        # Only what has changed is read; the record itself is the package's own affair.
        views = {
            task_id: self.sight.views[task_id]
            if self.sight.raw.get(task_id) == parts
            else self._view(task_id, parts[0])
            for task_id, parts in raw.items()
            if parts[0] is not None
        }
        return Sight(
            views,
            raw,
            arrived[::-1],
            {key.decode(): of.decode() for key, of in _pairs(holders)},
            [_tag_and_id(member) for member in tags],
            {task_id.decode() for task_id in owed},
            {lane[:1].decode(): how[:1].decode() for lane, how in _pairs(paused) if len(lane) == 7},
        )

    def _view(self, task_id: str, record: bytes) -> View:
        entry = self._entries.find(task_id)
        extras, flags = entry.extras, _flags(record)
        since_ms, last_ms = max(entry.due_ms, extras.excused_ms), math.inf
        if extras.grace_ms is not None:
            last_ms = since_ms + extras.grace_ms
        return View(
            *(name_in(record), entry.due_ms, extras.key, extras.tags, entry.created_ms),
            *(bool(flags & RUN_NOW), last_ms, edited_in(record), bool(flags & RELEASED), since_ms),
        )


def _text(*command: Any) -> bytes:
    return b"*%d\r\n%s" % (len(command), b"".join(packed(command)))


def _flags(record: bytes) -> int:
    return Record(record, record.index(b":") + 1 + int(record[2 : record.index(b":")])).flags


def _pairs(flat: list[Any]) -> Any:
    return zip(flat[::2], flat[1::2], strict=True)


def _tag_and_id(member: bytes) -> tuple[str, str]:
    tag, _, entry = member.partition(b"\0")
    return tag.decode(), entry[6:].decode()


def _id_in(index: str, member: bytes) -> str:
    return member[LANE + 6 if index == "parked" else 6 :].decode()


def name_in(message: bytes) -> str:
    """The name of the call that a message or a record is of."""
    return NAME.search(message)[1].decode()


def edited_in(message: bytes) -> str:
    """The name of the call that edited it last."""
    found = EDITED.search(message)
    return found[1].decode() if found else ""


def describe(before: Sight, after: Sight) -> str:
    """What is another than it was, for the history."""
    parts = [f"pushed {name_in(message)}" for message in after.arrived]
    for task_id in sorted(before.raw.keys() | after.raw.keys()):
        if before.raw.get(task_id) != after.raw.get(task_id):
            view, (_, *places) = after.views.get(task_id), after.raw.get(task_id, [None])
            at = [f"{place} {_since_start(int(score))}" for place, score in places]
            parts.append(f"{task_id} {view.name} {' '.join(at)}" if view else f"{task_id} is gone")
    return ", ".join(parts)


def _since_start(ms: int) -> str:
    return f"{ms / 1000 - START_US / SECOND:+.3f}"
