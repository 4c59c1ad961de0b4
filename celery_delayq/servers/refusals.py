"""What a Redis that refuses a command means by it: the one list of its error codes.

    full      it is at maxmemory
    away      it serves nobody at present: starting, busy, a replica, unable to write to its disk
    rights    this user may not do that at all, or this server does not know how
    elsewhere it is a node of a Redis Cluster, and other nodes serve the keys
    (none)    it is about this command: the type of this key, the right to this key

The first four are the server's own trouble. It did nothing, and no entry is to blame.
"""

from __future__ import annotations

import re
from enum import Enum

NOT_SERVED = (
    "this node of a Redis Cluster does not serve the store's keys; let delayq_url name the "
    "Cluster: redis+cluster:// or rediss+cluster:// in place of redis:// or rediss://"
)
NO_BROKER = (
    "this Redis belongs to a Redis Cluster, which cannot be the store and the broker at once; let "
    "delayq_url name it, and broker_url another broker"
)
# Valkey 9 may have databases in a Cluster, and tells which it has not.
_NO_DATABASE = re.compile(r"SELECT is not allowed in cluster mode|DB index is out of range")
_DATABASE_0 = "; let the URL name a database that this Redis has, such as 0"


class Refusal(Enum):
    """The server's own trouble."""

    FULL = "full"
    AWAY = "away"
    RIGHTS = "rights"
    ELSEWHERE = "elsewhere"


# Codes as they stand in a reply: at its beginning or, before Redis 7, inside the report of a
# script's error.
_CODES = re.compile(
    r"(?:^|\s-)(?:(?P<full>OOM)"
    r"|(?P<away>BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|READONLY|TRYAGAIN|UNBLOCKED)"
    r"|(?P<rights>NOAUTH|WRONGPASS)"
    r"|(?P<elsewhere>MOVED|ASK|CROSSSLOT))\b"
)

# What stands around an error of a script, in each version's words: which it is, and where in it.
_PLACE = re.compile(
    r"^Error running script .*?@user_script: ?\d+: -"
    r"|\s*script: (?:\w+, )?on @user_script:\d+\.\s*$",
    re.DOTALL,
)

# NOPERM is said of a command and of a key, in other words by each version of Redis. A command that
# was renamed or left out is one that nobody may use.
_NO_COMMAND = re.compile(
    r"no permissions to run the |can't run this command|(?i:unknown (redis )?command)"
)

# Codes that redis-py strips, as their errors have a class: by its name, lest this depend on it.
_CLASSES = {
    "OutOfMemoryError": Refusal.FULL,
    "BusyLoadingError": Refusal.AWAY,
    "ClusterDownError": Refusal.AWAY,
    "MasterDownError": Refusal.AWAY,
    "ReadOnlyError": Refusal.AWAY,
    "TryAgainError": Refusal.AWAY,
    "AuthenticationError": Refusal.RIGHTS,
    "MovedError": Refusal.ELSEWHERE,
    "AskError": Refusal.ELSEWHERE,
    "ClusterCrossSlotError": Refusal.ELSEWHERE,
}

_REPLICA = re.compile(r"(?:^|\s-|\s)(?:READONLY|MASTERDOWN|UNBLOCKED)\b")
_STRIPPED = {
    "AskError": "ASK",
    "ClusterCrossSlotError": "CROSSSLOT",
    "ClusterDownError": "CLUSTERDOWN",
    "MasterDownError": "MASTERDOWN",
    "MovedError": "MOVED",
    "ReadOnlyError": "READONLY",
    "TryAgainError": "TRYAGAIN",
}


def why_of(error: BaseException) -> str:
    """What a server says of its own trouble, without the place in a script where it met it."""
    if refusal_of(error) is Refusal.ELSEWHERE:
        return NO_BROKER if "CROSSSLOT" in said_of(error) else NOT_SERVED
    said = _PLACE.sub("", str(error))
    return said + _DATABASE_0 if _NO_DATABASE.search(said) else said


def said_of(error: BaseException | None) -> str:
    """What a server said, with its code."""
    return f"{_code_of(error)} {error}".strip()


def refusal_of(error: BaseException) -> Refusal | None:
    """What trouble of the server's own an error of redis-py tells of, if it does."""
    by_class = _CLASSES.get(type(error).__name__)
    if by_class:
        return by_class
    text = str(error)
    found = _CODES.search(text)
    if found and found.lastgroup:
        return Refusal(found.lastgroup)
    is_never = _NO_COMMAND.search(text) or _NO_DATABASE.search(text)
    return Refusal.RIGHTS if is_never else None


def is_replica(error: BaseException | None) -> bool:
    """Whether a server says by an error that it is a replica: it did nothing, another is to ask."""
    return error is not None and bool(_REPLICA.search(said_of(error)))


def lacks_replicas(error: BaseException) -> bool:
    """Whether a server takes no writes for lack of replicas; one of them may be the master."""
    return "NOREPLICAS" in str(error)


def _code_of(error: BaseException | None) -> str:
    return _STRIPPED.get(type(error).__name__, "")
