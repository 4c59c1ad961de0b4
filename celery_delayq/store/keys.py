"""Every key's name, in one place.

All keys of a shard carry one hash tag, so that Redis Cluster keeps them on one node and a
script may touch them together. One shard for now: 0.
"""

from __future__ import annotations

SCHEMA = "1"  # version of the layout; a process with another one is refused

# Key -> Redis type and content. The scripts' headers use these very names.
KEYS: dict[str, str] = {
    "due": "ZSET  member -> due time in ms, of entries bound for a list in this Redis",
    "relay": "ZSET  member -> due time in ms, of entries that a scanner publishes",
    "leased": "ZSET  member -> lease deadline in ms, of entries being published",
    "dead": "ZSET  member -> since when it is dead, ms",
    "records": "HASH  id -> record",
    "templates": "HASH  name -> template that records share",
    "template_uses": "HASH  name -> how many records share it",
    "claims": "HASH  id -> attempts:refusals:uncertain:lease_ms:token, of what was tried",
    "dead_reasons": "HASH  id -> why it is in `dead`",
    "tombstones": "HASH  id -> what is remembered of an entry that left: how, and when",
    "tombstones_old": "HASH  the generation before; each holds some 10,000",
    "answers": "HASH  operation -> answer of a changing call, while a request of it may come",
    "answers_old": "HASH  the generation before; a generation lasts as long as the longest call",
    "fences": "HASH  id -> when a call left no entry under it, us; older requests are refused",
    "fences_old": "HASH  the generation before",
    "outbox": "ZSET  id whose REVOKED is to be stored -> from when on a scanner does it, ms",
    "outbox_messages": "HASH  id -> how it was cancelled, when (us), and its message",
    "arrived": "HASH  mark of a hand-over -> attempt that was at a worker first; since -> ms",
    "arrived_old": "HASH  the generation before; see `delayq_once`",
    "scanners": "ZSET  scanner -> ms until which its last heartbeat counts",
    "timer": "STRING  which scanner has its timer set for the next due time, and when that is",
    "wake": "LIST  at most one token: something earlier than the head was scheduled",
    "meta": "HASH  seq -> last insertion number; what processes agree on; when generations turned",
}


class Keys:
    """The names under one prefix.

    >>> Keys("delayq")["due"]
    '{delayq:0}:due'
    """

    def __init__(self, prefix: str, shard: int = 0) -> None:
        self._names = {name: f"{{{prefix}:{shard}}}:{name}" for name in KEYS}

    def __getitem__(self, name: str) -> str:
        return self._names[name]
