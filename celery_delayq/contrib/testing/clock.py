"""A clock that a test moves: the scripts', the app's and this package's, all alike.

    advance --> clock, a key beside the store's --> clock_us of the scripts
            |     in the same step: heartbeats move along, and scanners are woken
            +-> ahead --> app.now, clock.utc_now

The scripts differ from those in production only in their function ``clock_us``. It finds its key
beside the script's first one, so that the text is the same for each prefix: a real server keeps
every script that it receives.

First come the ways to set aside parts of a test's process, and to put them back.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from typing import Any

from celery import Celery

from ...core import clock
from ...core.errors import InvalidOption
from ...core.hooks import Hooks
from ...core.servers.connection import Connection, packed
from ...core.settings import Settings
from ...core.store.keys import Keys
from ...core.store.scripts import Script, Scripts, load

KEY = "clock"

_OWN = re.compile(r"^local function clock_us\(\)\n.*?^end$", re.MULTILINE | re.DOTALL)
# Rounded up to the next millisecond, as due times are: if time stands still, advancing by half an
# hour has to reach a task that was scheduled half an hour ahead.
_MOVED = """\
local function clock_us()
  local time = redis.call('TIME')
  local ahead = redis.call('GET', string.match(KEYS[1], '^.*}:') .. 'clock') or 0
  return math.ceil((time[1] * 1000000 + time[2] + ahead) / 1000) * 1000
end"""

# KEYS: clock, scanners, and the channel of all scanners. ARGV: the advance in us, and in ms.
_ADVANCE = """\
redis.call('INCRBY', KEYS[1], ARGV[1])
for _, scanner in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  redis.call('ZINCRBY', KEYS[2], ARGV[2], scanner)
end
return redis.call('PUBLISH', KEYS[3], '')
"""

_FORWARD = "0 or more, as time only passes; each test starts at the present"
_MICROSECOND = timedelta(microseconds=1)


@contextmanager
def put(names: MutableMapping[str, Any], name: str, value: Any) -> Iterator[None]:
    """Give a name another value for a while, in a namespace that has it or not."""
    had = {name: names[name]} if name in names else {}
    names[name] = value
    try:
        yield
    finally:
        names.pop(name, None)
        names.update(had)


@contextmanager
def emptied(*holders: Any) -> Iterator[None]:
    """Empty mappings for a while; they stay the same objects."""
    kept = [dict(holder) for holder in holders]
    for holder in holders:
        holder.clear()
    try:
        yield
    finally:
        for holder, had in zip(holders, kept, strict=True):
            holder.clear()
            holder.update(had)


@contextmanager
def without_variables(names: Iterable[str]) -> Iterator[None]:
    """Remove these variables from the environment for a while."""
    had = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(had)


@contextmanager
def kept(names: MutableMapping[str, Any]) -> Iterator[None]:
    """Restore a mapping afterwards, whatever was written to it."""
    had = dict(names)
    try:
        yield
    finally:
        names.clear()
        names.update(had)


class MovedScripts(Scripts):
    """The scripts, with a clock that is ahead by the number in a key of the store.

    Args:
        connection: The connection to their Redis.
        keys: The shard's keys.
        settings: The app's.
        hooks: Called with how long calls take.
        sent: The scripts that this Redis has, so that short hand-overs need not send them again.
    """

    def __init__(
        self, connection: Connection, keys: Keys, settings: Settings, hooks: Hooks, sent: set[str]
    ) -> None:
        super().__init__(connection, keys, settings, hooks)
        self._sent = sent

    def script(self, name: str) -> Script:
        return _moved()[name]


@lru_cache(maxsize=1)
def _moved() -> dict[str, Script]:
    return {name: _with_clock(script) for name, script in load().items()}


def _with_clock(script: Script) -> Script:
    text = _OWN.sub(lambda _: _MOVED, script.text)
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return replace(script, text=text, sha=sha)


class Clock:
    """How far a test is ahead of its process, and of its Redis.

    Args:
        app: The app whose ``now`` is ahead.
    """

    def __init__(self, app: Celery) -> None:
        self.ahead = timedelta(0)
        self._app = app

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Let Celery and this package see that time in this process."""
        app_now, utc_now = self._app.now, clock.utc_now
        with ExitStack() as stack:
            moved = lambda: app_now() + self.ahead  # noqa: E731
            stack.enter_context(put(vars(self._app), "now", moved))
            stack.enter_context(put(vars(clock), "utc_now", lambda: utc_now() + self.ahead))
            yield

    def advance(self, scripts: Sequence[Scripts], by: timedelta) -> None:
        """Move on, and wake the scanners.

        Args:
            scripts: The scripts of each shard.
            by: How far; whole microseconds.

        Raises:
            InvalidOption: *by* is below 0.
            StoreError: Redis cannot be reached.
        """
        if by < timedelta(0):
            raise InvalidOption("advance", f"{by.total_seconds():g} s", _FORWARD)
        us = by // _MICROSECOND
        for shard in scripts:
            keys = clock_key(shard), shard.keys["scanners"], shard.keys["wake"]
            shard.connection.execute(
                "advance", packed(["EVAL", _ADVANCE, len(keys), *keys, us, us // 1000])
            )
        self.ahead += by


def clock_key(scripts: Scripts) -> str:
    """Return the key that says by how many microseconds a shard's clock is ahead."""
    return scripts.keys["meta"].removesuffix("meta") + KEY


def span_of(by: timedelta | None, units: dict[str, float]) -> timedelta:
    """Return the argument of ``advance``, a timedelta or the keywords of one, as a timedelta."""
    if by is not None and units:
        raise TypeError("advance takes a timedelta, or keywords like minutes=30; not both")
    if by is None:
        return timedelta(**units)
    if not isinstance(by, timedelta):
        raise TypeError(f"advance takes a timedelta, or keywords like minutes=30; got {by!r}")
    return by
