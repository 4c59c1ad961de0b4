"""Every key's name, in one place; and over how many sets of keys the entries are spread.

    task id --shard_of--> shard i of N --hash tag--> a slot in the i-th N-th of the 16384 slots

All keys of a shard carry one hash tag, so that Redis Cluster keeps them on one node and a
script may touch them together. A node has a range of slots, as a rule; so tags spread over all
slots spread shards over all nodes, where `0`, `1`, `2` might fall to a few of them.
"""

from __future__ import annotations

import binascii
import zlib
from functools import lru_cache
from itertools import chain, count

SCHEMA = "1"  # version of the layout; a process with another one is refused
SLOTS = 16384  # of a Redis Cluster

# Key -> Redis type and content. The scripts' headers use these very names.
KEYS: dict[str, str] = {
    "due": "ZSET  member -> due time in ms, of entries bound for a list in this Redis",
    "relay": "ZSET  member -> due time in ms, of entries that a scanner publishes",
    "leased": "ZSET  member -> lease deadline in ms, of entries being published",
    "refused": "ZSET  member -> next try in ms, of entries whose last attempt was refused",
    "parked": "ZSET  lane, due time, kind, member -> 0, of entries that fell due while paused",
    "paused": "HASH  lane -> what is paused, since when, and how it comes back; < -> lanes that do",
    "dead": "ZSET  member -> since when it is dead, ms",
    "records": "HASH  id -> record",
    "holders": "HASH  key -> id of the entry that has it; it holds it while it waits",
    "tags": "ZSET  tag, NUL, member -> 0",
    "templates": "HASH  name -> template that records share",
    "template_uses": "HASH  name -> how many records share it",
    "claims": "HASH  id -> attempts:refusals:uncertain:lease_ms:token, of what was tried",
    "errors": "HASH  id -> what went wrong with it last",
    "tombstones": "HASH  id -> what is remembered of an entry that left: how, and when",
    "tombstones_old": "HASH  the generation before; each holds some 10,000",
    "calls": "HASH  operation -> answer of a changing call; id, key or lane -> its fence: what was "
    "asked before is refused; see prelude/call.lua",
    "calls_old": "HASH  the generation before; a generation lasts as long as the longest call",
    "outbox": "ZSET  id whose REVOKED is to be stored -> from when on a scanner does it, ms",
    "outbox_messages": "HASH  id -> how it was cancelled, when (us), and its message",
    "arrived": "HASH  mark -> first attempt, or what became of a message; since, last -> when, ms",
    "arrived_old": "HASH  the generation before",
    "history": "LIST  what happened last, the newest first, if that is kept",
    "scanners": "ZSET  scanner -> ms until which its last heartbeat counts",
    "heartbeats": "HASH  scanner -> when it gave its last heartbeat, ms",
    "wake": "CHANNEL  all scanners listen; and one to wake:NAME, which others do not",
    "meta": "HASH  seq -> last insertion number; timer -> which scanner is up next, and when; what "
    "processes agree on; turns and recounts made; tidy -> w while each entry just waits, u while "
    "nothing is paused",
}


class Keys:
    """The names of a shard's keys under one prefix.

    >>> Keys("delayq")["due"]
    '{delayq:0}:due'
    """

    def __init__(self, prefix: str, shard: int = 0, shards: int = 1) -> None:
        tag = hash_tag(prefix, shard, shards)
        self.prefix = prefix
        self.is_meeting_place = tag == _meeting_place(prefix)
        self._names = {name: f"{{{tag}}}:{name}" for name in KEYS}

    def __getitem__(self, name: str) -> str:
        return self._names[name]

    @property
    def names(self) -> list[str]:
        """Those of its keys, without the channels."""
        return [self[name] for name, what in KEYS.items() if not what.startswith("CHANNEL")]

    def channels(self, scanner: str) -> tuple[str, str]:
        """Where a scanner is told to look: with all others, and by itself."""
        return self["wake"], f"{self['wake']}:{scanner}"


@lru_cache(maxsize=1000)
def hash_tag(prefix: str, shard: int, shards: int) -> str:
    """What stands in the braces of a shard's keys, and brings them into its part of the slots.

    One shard has the tag ``prefix:0``, however many there are: so processes that differ in their
    number meet there. The others have their own number, and one that was tried out.

    >>> [hash_tag("delayq", shard, 3) for shard in range(3)]
    ['delayq:0.1', 'delayq:1.4', 'delayq:0']
    """
    if not 0 <= shard < shards:
        raise ValueError(f"there is no shard {shard} of {shards}")
    own = (f"{prefix}:{shard}.{number}" for number in count(1))
    tags = chain([_meeting_place(prefix)], own)
    return next(tag for tag in tags if slot_of(tag) * shards // SLOTS == shard)


def _meeting_place(prefix: str) -> str:
    return f"{prefix}:0"


def slot_of(tag: str) -> int:
    """The slot of a hash tag; Redis Cluster's specification, "Key distribution model"."""
    return binascii.crc_hqx(tag.encode(), 0) % SLOTS


def shard_of(task_id: str, shards: int) -> int:
    """The shard that a task's entry is in: the CRC-32 of its id, modulo their number.

    Every process must come to the same, so it is nothing that differs between versions of Python.
    """
    return zlib.crc32(task_id.encode()) % shards if shards > 1 else 0
