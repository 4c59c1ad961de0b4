"""Ask Redis whether each key of a shard has its type: when a process joins, and by ``check``.

Scripts do not ask: a key that another program overwrites while workers run can stop a script
half-way.
"""

from __future__ import annotations

from ..errors import StoreError, StoreUnavailable
from ..servers.connection import Connection, packed
from .keys import KEYS, Keys

# What each type answers whose key has another one: it refuses. These are commands of the scripts.
_ASKING = {
    "ZSET": ("ZCARD",),
    "HASH": ("HLEN",),
    "LIST": ("LRANGE", 0, 0),
}


def check_types(connection: Connection, keys: Keys, step: str, until: float | None) -> None:
    """Find out whether every key of ours that exists has the type that the scripts expect.

    Args:
        connection: To the Redis of the shard.
        keys: The shard's.
        step: What it is for, as an error shall say.
        until: When to give up, by the monotonic clock.

    Raises:
        StoreError: one has not, and which.
        StoreUnavailable: no answer came in time.
    """
    questions = {keys[name]: _question(keys[name], what) for name, what in _types().items()}
    try:
        connection.exchange(step, list(questions.values()), until)
    except StoreUnavailable:
        raise
    except StoreError:
        # Several were asked at once; one by one they tell which it was, and why.
        for key, question in questions.items():
            _ask(connection, key, question, step, until)


def _ask(
    connection: Connection, key: str, question: list[bytes], step: str, until: float | None
) -> None:
    try:
        connection.execute(step, question, until)
    except StoreUnavailable:
        raise
    except StoreError as error:
        # A right that is missing is named by the first step that needs it.
        if error.why.startswith("WRONGTYPE"):
            raise StoreError(step, f"the key {key}: {error.why}") from error.__cause__


def _types() -> dict[str, str]:
    types = {name: what.split()[0] for name, what in KEYS.items()}
    return {name: kind for name, kind in types.items() if kind in _ASKING}


def _question(key: str, kind: str) -> list[bytes]:
    command, *rest = _ASKING[kind]
    return packed([command, key, *rest])
