"""What a Redis says of itself: asked once, read here.

    HELLO ---> what it is, its version, its role      every user may ask
    INFO ----> memory, persistence, replicas          a hosted one may not tell
    CONFIG --> save points, how often it syncs        most hosted ones do not

What it does not tell is left open: ``None``, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import StoreError, StoreUnavailable
from .connection import Connection, packed

SETTINGS = ("save", "appendfsync", "stop-writes-on-bgsave-error", "min-replicas-to-write")
_LINE = re.compile(r"^(\w+):([^\r\n]*)", re.MULTILINE)


def ask(connection: Connection, *command: str | int) -> Any:
    """What Redis answers, or ``None`` where it, or something before it, does not tell this user.

    Raises:
        StoreUnavailable: no answer came in time.
    """
    try:
        return connection.execute("doctor", packed(command))
    except StoreUnavailable:
        # What stands before a Redis may hang up on a command that it does not like.
        _see_it_is_there(connection)
    except StoreError:
        pass
    return None


def _see_it_is_there(connection: Connection) -> None:
    try:
        connection.execute("doctor", packed(["PING"]))
    except StoreUnavailable:
        raise
    except StoreError:
        pass  # an answer as well


@dataclass(frozen=True)
class Facts:
    """What a Redis says of itself.

    Attributes:
        hello: What it greets with: server, version, mode, role.
        info: The fields of INFO; empty where it does not tell.
        config: Its settings, of those in :data:`SETTINGS` that it tells.
    """

    hello: Mapping[str, str]
    info: Mapping[str, str]
    config: Mapping[str, str]

    @classmethod
    def ask(cls, connection: Connection) -> Facts:
        """Ask it; six commands at most.

        Raises:
            StoreUnavailable: no answer came in time.
        """
        hello = ask(connection, "HELLO", 2) or []
        told = dict(_LINE.findall(_text(ask(connection, "INFO") or b"")))
        return cls(_pairs(hello), told, _config(connection))

    @classmethod
    def of_memory(cls, connection: Connection) -> Facts:
        """Ask it for its memory alone: one command."""
        info = _text(ask(connection, "INFO", "memory") or b"")
        return cls({}, dict(_LINE.findall(info)), {})

    @property
    def version(self) -> str:
        """Its product and version: ``Redis 7.0.15``; empty where it tells neither."""
        version = self.hello.get("version") or self.info.get("redis_version", "")
        return f"{self.hello.get('server', 'redis').capitalize()} {version}" if version else ""

    @property
    def is_replica(self) -> bool | None:
        """Whether it follows another one."""
        role = self.info.get("role") or self.hello.get("role")
        return None if role is None else role not in ("master", "primary")

    @property
    def policy(self) -> str | None:
        """Its ``maxmemory-policy``."""
        return self.info.get("maxmemory_policy")

    @property
    def maxmemory(self) -> int | None:
        """Bytes that it may use; 0: as many as its machine has."""
        return self._number("maxmemory")

    @property
    def used(self) -> int | None:
        """Bytes that it uses, as far as ``maxmemory`` counts them."""
        used = self._number("used_memory")
        return None if used is None else used - (self._number("mem_not_counted_for_evict") or 0)

    @property
    def has_log(self) -> bool | None:
        """Whether it has an append-only file."""
        told = self.info.get("aof_enabled")
        return None if told is None else told == "1"

    @property
    def replicas(self) -> list[Mapping[str, str]]:
        """Its replicas: ip, port, state, offset, lag (in seconds)."""
        found = [text for name, text in self.info.items() if re.fullmatch(r"slave\d+", name)]
        return [dict(part.split("=", 1) for part in text.split(",") if "=" in part)
                for text in found]  # fmt: skip

    def _number(self, name: str) -> int | None:
        text = self.info.get(name, "")
        return int(text) if text.isdigit() else None


def _config(connection: Connection) -> dict[str, str]:
    told: dict[str, str] = {}
    for name in SETTINGS:
        answer = ask(connection, "CONFIG", "GET", name)
        if answer is None:
            break  # and neither does it tell the others
        told.update(_pairs(answer))
    return told


def _pairs(flat: Any) -> dict[str, str]:
    """A flat reply; what is no text in it is left out."""
    if not isinstance(flat, list):
        return {}
    pairs = zip(flat[::2], flat[1::2], strict=False)
    return {_text(name): _text(value) for name, value in pairs if isinstance(value, bytes)}


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
