"""Keys of a measurement's or a trial's own in a Redis, removed at its end.

Everything is named ``{<prefix>:doctor-<8 hex digits>:0}:…``. A prefix of the settings has no colon,
so no app and no scanner ever looks there; and the access rights to an app's own keys cover these.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from ..errors import StoreError
from ..servers import Connection, packed
from .keys import KEYS, Keys
from .scripts import Scripts

LIFETIME_MS = 600_000  # of what a killed process leaves behind

# One message stays: a list that is made anew would have no time to live.
_TIDY = """
redis.call('UNLINK', KEYS[1])
redis.call('LPUSH', KEYS[1], '')
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[1]) end
"""


class ScratchKeys:
    """Keys of one's own, removed at the end of a ``with``.

    Args:
        connection: To the Redis; used by nobody else, and closed at the end.
        prefix: The app's; the keys' names begin with it.
    """

    def __init__(self, connection: Connection, prefix: str) -> None:
        self.scripts = Scripts(connection, Keys(f"{prefix}:doctor-{os.urandom(4).hex()}"))
        self._name = self.scripts.keys["due"].removesuffix("due")
        self.list = f"{self._name}list"
        self._names = [self.list, *map(self.scripts.keys.__getitem__, KEYS)]
        self._connection = connection

    def __enter__(self) -> None:
        # What could not be removed afterwards is not written.
        self.execute("UNLINK", *self._names, step=f"doctor on {self._name}*")

    def __exit__(self, *_: object) -> None:
        # On a new connection: the old one may still bring the answer to what was interrupted.
        self._connection.close()
        self.execute("UNLINK", *self._names, step=f"removing {self._name}*")
        self._connection.close()

    def tidy(self) -> None:
        """Empty the list, and give all keys a time to live where Redis lets it."""
        self.if_allowed("EVAL", _TIDY, len(self._names), *self._names, LIFETIME_MS)

    def memory(self) -> int | None:
        """Bytes of Redis's memory that waiting entries take; ``None`` where it does not tell."""
        names = [
            self.scripts.keys[name] for name in ("due", "records", "templates", "template_uses")
        ]
        sizes = [self.if_allowed("MEMORY", "USAGE", name, "SAMPLES", 100) for name in names]
        return None if None in sizes else sum(sizes)

    def if_allowed(self, *command: str | int) -> Any:
        """The answer to a command that one can do without; ``None`` where Redis refuses it."""
        with suppress(StoreError):
            return self.execute(*command)
        return None

    def execute(self, *command: str | int, step: str = "doctor") -> Any:
        """Send one command; *step* is what an error names."""
        return self._connection.execute(step, packed(command))
