"""The meaning of Redis's error replies: the only list of its error codes.

    full      it is at maxmemory
    away      it serves no one now: starting, busy, a replica, unable to write to its disk
    rights    this user may not run the command, or this server lacks it
    elsewhere it is a node of a Redis Cluster, and other nodes serve the keys
    resharded the store's entries are in another number of shards by now
    (none)    only this command fails: the type of its key; or the right to its key, see `is_denied`

In the first four cases the server itself is at fault. It did nothing, and it does not count as a
failure of any task.
"""

from __future__ import annotations

import re
from enum import Enum

NOT_SERVED = (
    "this node of a Redis Cluster does not serve the store's keys; let delayq_url name the "
    "Cluster: redis+cluster:// or rediss+cluster:// in place of redis:// or rediss://"
)
NO_BROKER = (
    "this Redis belongs to a Redis Cluster, which can be the store and the broker at once only if "
    "delayq_shards is 1 and global_keyprefix in broker_transport_options begins with the store's "
    "hash tag, as '{delayq:0}:' does; set them, or let broker_url name another broker"
)
# Valkey 9 can have databases in a Cluster, and reports a number that is out of range.
_NO_DATABASE = re.compile(r"SELECT is not allowed in cluster mode|DB index is out of range")
_DATABASE_0 = "; let the URL name a database that this Redis has, such as 0"


# While the store is resharded: now, and then; see store/lua/prelude/closed.lua.
_RESHARDING = re.compile(r"^RESHARDING (\d+) (\d+)$")
_NOW_RESHARDING = (
    "the store is being resharded, delayq_shards %s to %s; until that is done, it can only be read"
)


class Refusal(Enum):
    """A refusal because of the server's own state."""

    FULL = "full"
    AWAY = "away"
    RIGHTS = "rights"
    ELSEWHERE = "elsewhere"
    RESHARDED = "resharded"


# Codes in a reply: at its beginning or, before Redis 7, inside the report of a script's error.
_CODES = re.compile(
    r"(?:^|\s-)(?:(?P<full>OOM)"
    r"|(?P<away>BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|READONLY|RESHARDING"
    r"|TRYAGAIN|UNBLOCKED)"
    r"|(?P<rights>NOAUTH|WRONGPASS)"
    r"|(?P<elsewhere>MOVED|ASK|CROSSSLOT)|(?P<resharded>RESHARDED))\b"
)

# The text around a script's error, in each version's words: the script's name and line.
_PLACE = re.compile(
    r"^Error running script .*?@user_script: ?\d+: -"
    r"|\s*script: (?:\w+, )?on @user_script:\d+\.\s*$",
    re.DOTALL,
)

# NOPERM concerns a command or a key, and each version words it differently. A command that was
# renamed or removed is one that no user may run.
_NO_COMMAND = re.compile(
    r"no permissions to run the |can't run this command|(?i:unknown (redis )?command)"
)

# redis-py strips these codes and raises a class instead. Named here as text, so this does not
# depend on the class.
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
    """Return the server's words in a refusal, without the place in a script."""
    if refusal_of(error) is Refusal.ELSEWHERE:
        return NO_BROKER if "CROSSSLOT" in said_of(error) else NOT_SERVED
    text = _PLACE.sub("", str(error))
    if numbers := _RESHARDING.match(text):
        return _NOW_RESHARDING % numbers.groups()
    return text + _DATABASE_0 if _NO_DATABASE.search(text) else text


def said_of(error: BaseException | None) -> str:
    """Return the server's words, with the error code."""
    return f"{_code_of(error)} {error}".strip()


def refusal_of(error: BaseException) -> Refusal | None:
    """Return the refusal that a redis-py error stands for, if it stands for one."""
    by_class = _CLASSES.get(type(error).__name__)
    if by_class:
        return by_class
    text = str(error)
    found = _CODES.search(text)
    if found and found.lastgroup:
        return Refusal(found.lastgroup)
    is_never = _NO_COMMAND.search(text) or _NO_DATABASE.search(text)
    return Refusal.RIGHTS if is_never else None


def is_denied(error: BaseException) -> bool:
    """Whether this user lacks the right to a key, or to a command."""
    # redis-py strips the code.
    return type(error).__name__ == "NoPermissionError"


def is_replica(error: BaseException | None) -> bool:
    """Whether an error says that the server is a replica: it did nothing, so ask the master."""
    return error is not None and bool(_REPLICA.search(said_of(error)))


def lacks_replicas(error: BaseException) -> bool:
    """Whether a server refuses writes for lack of replicas; another may be the master by now."""
    return "NOREPLICAS" in str(error)


def _code_of(error: BaseException | None) -> str:
    return _STRIPPED.get(type(error).__name__, "")
