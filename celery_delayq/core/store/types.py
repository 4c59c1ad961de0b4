"""Checks the type of each key of a shard: when a process joins, and in ``check``.

Scripts do not check: if another program overwrites a key while workers run, a script can stop
half-way.
"""

from __future__ import annotations

from ..errors import StoreError, StoreUnavailable
from ..servers.connection import Connection, packed
from .keys import KEYS, Keys

# For each type, a command that is refused for keys of another one. The scripts use them as well.
_ASKING = {
    "ZSET": ("ZCARD",),
    "HASH": ("HLEN",),
    "LIST": ("LRANGE", 0, 0),
}


def check_types(connection: Connection, keys: Keys, step: str, until: float | None) -> None:
    """Check that every existing key of the store has the type that the scripts expect.

    Args:
        connection: The connection to the shard's Redis.
        keys: The shard's keys.
        step: The step to name in errors.
        until: When to give up, by the monotonic clock.

    Raises:
        StoreError: a key has another type; it names the key.
        StoreUnavailable: no answer came in time.
    """
    questions = {keys[name]: _question(keys[name], what) for name, what in _types().items()}
    try:
        connection.exchange(step, list(questions.values()), until)
    except StoreUnavailable:
        raise
    except StoreError:
        # All went in one exchange. Repeat them one by one, to find the key and the reason.
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
        # If a right is missing, the first step that needs it names that.
        if error.why.startswith("WRONGTYPE"):
            raise StoreError(step, f"the key {key}: {error.why}") from error.__cause__


def _types() -> dict[str, str]:
    types = {name: what.split()[0] for name, what in KEYS.items()}
    return {name: kind for name, kind in types.items() if kind in _ASKING}


def _question(key: str, kind: str) -> list[bytes]:
    command, *rest = _ASKING[kind]
    return packed([command, key, *rest])
