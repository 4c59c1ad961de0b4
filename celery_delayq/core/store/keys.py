"""Ids and other names that are checked; targets; the names of all keys; and the shards.

A target is what names an entry: its id, its key or its member.

    task id --shard_of--> shard i of N --hash tag--> a slot in the i-th N-th of the 16384 slots

    {PREFIX:0}        the meeting place: its `meta` says the number of shards, whatever that is
    {PREFIX:0}        the only shard of one
    {PREFIX:N.i.k}    shard i of N, k: the first number with which it falls in its N-th

All keys of a shard have one hash tag, so Redis Cluster keeps them on one node and a script may use
them together. A node usually has a range of slots, so tags spread over all slots spread the shards
over all nodes; the tags `0`, `1`, `2` might all fall to a few of them. Two layouts share no shard,
so a store can be copied into another layout while it stays whole.
"""

from __future__ import annotations

import binascii
import uuid
import zlib
from functools import lru_cache
from itertools import count
from typing import Any, Union
from uuid import UUID

from ..errors import InvalidOption

LONGEST_ID = 512  # bytes; a task id is part of every index
LONGEST_NAME = 255  # bytes of a unique key, or a tag

_EXPECTED = f"text of 1 to {LONGEST_ID} bytes"
_NAME_EXPECTED = f"text of 1 to {LONGEST_NAME} bytes, without NUL"


def id_text(task_id: Any) -> Any:
    """Return the text of a ``UUID``, and anything else as it is."""
    return str(task_id) if isinstance(task_id, UUID) else task_id


def checked_id(task_id: str) -> str:
    """Return *task_id* as plain text, if it is valid.

    For a ``(str, Enum)`` that is its value, as in JSON; ``str()`` of one may return its name.

    Raises:
        InvalidOption: it is not text, is empty, or is longer than 512 bytes.
    """
    if not isinstance(task_id, str):
        raise InvalidOption("task_id", task_id, _EXPECTED)
    if not 0 < _size_of(task_id) <= LONGEST_ID:
        raise InvalidOption("task_id", task_id, _EXPECTED)
    return plain_text(task_id)


def checked_name(name: str, value: str) -> str:
    """Return *value* as plain text, if it can be a unique key or a tag; *name* is the option's.

    Raises:
        InvalidOption: it is not text, is empty, is longer than 255 bytes, or has a NUL.
    """
    is_text = isinstance(value, str) and "\0" not in value
    if not is_text or not 0 < _size_of(value) <= LONGEST_NAME:
        raise InvalidOption(name, value, _NAME_EXPECTED)
    return plain_text(value)


def plain_text(text: str) -> str:
    """Return *text* as ``str`` itself; for a ``(str, Enum)``, its value."""
    # Django's lazy objects pass for text by isinstance, but are none.
    return str.__str__(text) if issubclass(type(text), str) else str(text)


def _size_of(text: str) -> int:
    """Return the size in bytes; 0 if it is no Unicode."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0


# A task id, or the output of `target_of_key` or `target_of_member`.
Target = Union[str, bytes]


def target_of(who: Target) -> bytes:
    """Return a target as scripts take it; see ``lua/prelude/entry.lua``."""
    return who if isinstance(who, bytes) else b"i" + who.encode()


def target_of_key(key: str) -> bytes:
    """Return the target for the entry that has this unique key."""
    return b"k" + key.encode()


def target_of_member(member: bytes) -> bytes:
    """Return the target for one member: an id with its insertion number."""
    return b"m" + member


def named(who: Target) -> str:
    """Return an id or a key, as errors show it."""
    if isinstance(who, str):
        return who
    return who[7 if who.startswith(b"m") else 1 :].decode(errors="replace")


SCHEMA = "1"  # version of the layout; processes with another one are refused
SLOTS = 16384  # of a Redis Cluster

# Key -> Redis type and content. The scripts' headers use these names.
KEYS: dict[str, str] = {
    "due": "ZSET  member -> due time in ms, of entries bound for a list in this Redis",
    "relay": "ZSET  member -> due time in ms, of entries that a scanner publishes",
    "leased": "ZSET  member -> lease deadline in ms, of entries being published",
    "refused": "ZSET  member -> next try in ms, of entries whose last attempt was refused",
    "parked": "ZSET  lane, due time, kind, member -> 0, of entries that fell due while paused",
    "paused": "HASH  lane -> what is paused, since when, and how it comes back; < -> lanes that do",
    "behind": "ZSET  member -> due time in ms, of entries whose key another one holds",
    "dead": "ZSET  member -> since when it is dead, ms",
    "records": "HASH  id -> record",
    "holders": "HASH  key -> id of the entry that holds it; if that has left, \\xff, delivery; "
    "\\xff, key -> member of the entry behind it",
    "held": "ZSET  key that is held although its entry has left -> until when, ms; or, with one "
    "behind it, when to look again",
    "tags": "ZSET  tag, NUL, member -> 0",
    "templates": "HASH  name -> template that records share",
    "template_uses": "HASH  name -> how many records share it",
    "claims": "HASH  id -> attempts:refusals:uncertain:lease_ms:token, of its attempts",
    "errors": "HASH  id -> its last error",
    "tombstones": "HASH  id -> how and when the entry left",
    "tombstones_old": "HASH  the generation before; `remember` in `meta` bounds both",
    "calls": "HASH  operation -> answer of a changing call; id, key or lane -> its fence: calls "
    "made before it are refused; see prelude/call.lua",
    "calls_old": "HASH  the generation before; a generation lasts as long as the longest call",
    "outbox": "ZSET  id whose REVOKED must be stored -> when a scanner may store it, ms",
    "outbox_messages": "HASH  id -> how it was cancelled, when (us), and its message",
    "arrived": "HASH  mark -> first attempt, or a message's fate; since, last -> when, ms",
    "arrived_old": "HASH  the generation before",
    "undo": "HASH  id -> line of an entry that was cancelled, if an undo may bring it back; "
    "\\xff, id -> line of one that a change of many moved",
    "undo_old": "HASH  the generation before",
    "undo_bulks": "HASH  name of a cancel or move of many -> how many of its tasks are not back",
    "undo_bulks_old": "HASH  the generation before",
    "rules": "HASH  name of a recurring rule -> its row",
    "rules_next": "ZSET  name of a recurring rule -> when to look at it, ms; below 0, if it is "
    "laid aside for a later release",
    "rules_trouble": "HASH  name of a recurring rule -> since when, ms, and why no next run can "
    "be made",
    "rules_named": "HASH  the rules and tasks that workers name: see rules_named.lua",
    "reconciled": "HASH  tag -> when a reconcile of it ended, ms, and what it found",
    "history": "LIST  the latest events of entries that were changed by themselves, newest first, "
    "if a history is kept",
    "history_changes": "LIST  a line for each of the latest changes of many, and pauses",
    "history_parts": "LIST  the latest events of entries that a change of many changed",
    "scanners": "ZSET  scanner -> ms until which its last heartbeat counts",
    "heartbeats": "HASH  scanner -> when its last heartbeat came, ms; the newest format that it "
    "reads; when it joined the shard, ms; with colons between",
    "wake": "CHANNEL  all scanners listen; each also listens to a wake:NAME of its own",
    "meta": "HASH  seq -> last insertion number; timer -> which scanner is up next, and when; "
    "settings common to all processes; format -> the newest that records and rules may have; "
    "began -> when the shard was joined first, ms; empty, or none: unknown; turns and recounts; "
    "tidy -> w while each entry just waits, u while nothing is paused; rules_at -> when a writer "
    "claimed rules last, ms; secret -> the store's name, and what signs links; "
    "reshard, closed, ended: see prelude/closed.lua",
}


class Keys:
    """The names of a shard's keys under one prefix; by default, those of the meeting place.

    >>> Keys("delayq")["due"]
    '{delayq:0}:due'
    """

    def __init__(self, prefix: str, shard: int = 0, shards: int = 1) -> None:
        tag = hash_tag(prefix, shard, shards)
        self.prefix = prefix
        self.slot = slot_of(tag)
        self.is_meeting_place = tag == _meeting_place(prefix)
        self._names = {name: f"{{{tag}}}:{name}" for name in KEYS}

    def __getitem__(self, name: str) -> str:
        return self._names[name]

    @property
    def names(self) -> list[str]:
        """The keys' names, without the channels."""
        return [self[name] for name, what in KEYS.items() if not what.startswith("CHANNEL")]

    def channels(self, scanner: str) -> tuple[str, str]:
        """Return the channels that wake a scanner: the common one, and its own."""
        return self["wake"], f"{self['wake']}:{scanner}"


@lru_cache(maxsize=1000)
def hash_tag(prefix: str, shard: int, shards: int) -> str:
    """Return the text in the braces of a shard's keys, which selects its part of the slots.

    >>> [hash_tag("delayq", shard, 3) for shard in range(3)]
    ['delayq:3.0.1', 'delayq:3.1.1', 'delayq:3.2.1']
    """
    if not 0 <= shard < shards:
        raise ValueError(f"there is no shard {shard} of {shards}")
    if shards == 1:
        return _meeting_place(prefix)
    tags = (f"{prefix}:{shards}.{shard}.{number}" for number in count(1))
    return next(tag for tag in tags if slot_of(tag) * shards // SLOTS == shard)


def _meeting_place(prefix: str) -> str:
    return f"{prefix}:0"


def slot_of(tag: str) -> int:
    """Return the slot of a hash tag; Redis Cluster's specification, "Key distribution model"."""
    return binascii.crc_hqx(tag.encode(), 0) % SLOTS


def shard_of(name: str, shards: int) -> int:
    """Return the shard of a key or an id: its CRC-32, modulo the number of shards.

    Every process must get the same, so it uses nothing that differs between versions of Python.
    """
    return zlib.crc32(name.encode()) % shards if shards > 1 else 0


def id_beside(key: str, shards: int) -> str:
    """Return an id for a new task with this key, on the key's shard.

    So a call by the id finds its entry at once, without a search of the other shards. It is drawn
    until it fits, so it stays as random as any UUID.
    """
    drawn = (str(uuid.uuid4()) for _ in count())
    return next(
        candidate for candidate in drawn if shard_of(candidate, shards) == shard_of(key, shards)
    )
