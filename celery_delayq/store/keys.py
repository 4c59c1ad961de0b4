"""Every key's name, in one place.

All keys of a shard carry one hash tag, so that Redis Cluster keeps them on one node and a
script may touch them together. One shard for now: 0.

What an entry may come to have besides (a unique key, tags, a late policy) has its place in one more
hash, id -> text, beside the records. The steps by which entries leave ask for its length, and look
further only where it is not zero; so records keep their format, and who uses none of it pays
nothing. A pause parks what falls due for a queue in an index of its own, and a history is a list
that these steps push to.
"""

from __future__ import annotations

# Key -> Redis type and content. The scripts' headers use these very names.
KEYS: dict[str, str] = {
    "due": "ZSET  member -> due time in ms, of entries bound for a list in this Redis",
    "relay": "ZSET  member -> due time in ms, of entries that a scanner publishes",
    "leased": "ZSET  member -> lease deadline in ms, of entries being published",
    "dead": "ZSET  member -> when it was set aside, ms",
    "messages": "HASH  id -> record",
    "templates": "HASH  name -> template that records share",
    "uses": "HASH  name -> how many records share it",
    "claims": "HASH  id -> attempts:refusals:unsure:lease_ms:token, of what was claimed",
    "reasons": "HASH  id -> why it is in `dead`",
    "handed": "HASH  id -> trace of what left: handed over or cancelled, and when",
    "handed_old": "HASH  the generation before; each holds some 10,000",
    "scanners": "ZSET  scanner -> ms until which its last sign of life counts",
    "watch": "STRING  which scanner is up for the next due time, and when that is",
    "wake": "LIST  at most one token: something earlier than the head was scheduled",
    "meta": "HASH  seq -> last insertion number; schema -> version of this layout",
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
