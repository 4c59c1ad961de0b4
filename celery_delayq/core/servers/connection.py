"""A connection that sends each command once, and the meaning of each refusal of Redis.

    Scripts ---> Connection.execute ---> one from this process's pool
    Wakeup ----> Connection.dedicated -> one to block on, outside the pool

A connection returns to the pool only after its answer was read. So even if a call is interrupted,
no other call reads its answer.

This module has the only list of Redis's error codes. Each means one of these:

    full      it is at maxmemory
    away      it serves no one now: starting, busy, a replica, unable to write to its disk
    rights    this user may not run the command, or this server lacks it
    elsewhere it is a node of a Redis Cluster, and other nodes serve the keys
    resharded the store's entries are in another number of shards by now
    (none)    only this command fails: the type of its key; or the right to its key, see `is_denied`

In all cases but the last the server itself is at fault. It did nothing, and it does not count as a
failure of any task.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

import redis

from .. import clock
from ..errors import StoreDiffers, StoreError, StoreFull, StoreUnavailable
from . import endpoint as defaults
from .endpoint import Address, Listener, Server
from .pool import PerProcess, Pool

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


_AWAY = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    OSError,
)


_EMPTY = b"$0\r\n\r\n"


def packed(parts: Iterable[bytes | str | int]) -> list[bytes]:
    """Return a command as bulk strings of the Redis protocol.

    In redis-py, packing takes a third of the time of a call with twenty arguments. Half of an
    entry's fields are empty.
    """
    texts = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return [b"$%d\r\n%s\r\n" % (len(text), text) if text else _EMPTY for text in texts]


class Connection:
    """A connection to a Redis, through a pool for each process.

    Args:
        server: The Redis.
        timeout: Seconds that a call may take: waiting for a free connection, connecting, sending
            and reading.
        reach: Seconds that each step of connecting may take, if less.
    """

    def __init__(
        self, server: Server, timeout: float | None = None, reach: float = math.inf
    ) -> None:
        self._server = server
        self._timeout = timeout
        self._reach = reach
        self._pool = PerProcess(lambda: Pool(server, reach=reach))

    @property
    def pool(self) -> Pool:
        """The pool of this process: with its parent's, a forked child would read its answers."""
        return self._pool.get()

    @property
    def node(self) -> Address | None:
        """The server's address; ``None``: it must be looked up."""
        return self._server.node

    def at(self, slot: int) -> Connection:
        """Return a connection to the server of a slot of a Redis Cluster, over the same pool."""
        server = self._server.at(slot)
        if server is self._server:
            return self
        part = copy.copy(self)
        part._server, part._pool = server, PerProcess(lambda: self.pool.at(server))
        return part

    def execute(self, step: str, command: list[bytes], until: float | None = None) -> Any:
        """Send one command, once; as :meth:`exchange`."""
        return self.exchange(step, [command], until)[0]

    def exchange(
        self, step: str, commands: list[list[bytes]], until: float | None = None
    ) -> list[Any]:
        """Send commands on one connection, each once, and return the answer to each.

        Args:
            step: The step's name in errors.
            commands: Each from :func:`packed`.
            until: When to give up, by the monotonic clock; by default after this connection's time
                limit for a call.

        Raises:
            StoreUnavailable: no connection, or no answer in time; whether it ran is unknown.
            StoreFull: Redis is at ``maxmemory``.
            redis.exceptions.NoScriptError: for the script loader, which handles it.
            StoreError: Redis refused the first of them that it refused; the others may have run.
        """
        if until is None:
            until = clock.monotonic() + (self._timeout or defaults.TIMEOUT)
        turn = 0
        while True:
            try:
                return self._exchange(step, commands, until)
            except StoreError as error:
                pause = self._server.again_after(error.__cause__, turn)
                # Among several commands, the refused one may be the last.
                may_have_run = len(commands) > 1
                if pause is not None and clock.seconds_left(until) <= pause:
                    why = f"refused until the call's time was over: {said_of(error.__cause__)}"
                    raise StoreUnavailable(step, why, may_have_run) from error.__cause__
                if pause is None:
                    if turn and may_have_run and isinstance(error, StoreUnavailable):
                        raise StoreUnavailable(step, error.why) from error
                    raise
            clock.sleep(pause)
            turn += 1

    def _exchange(self, step: str, commands: list[list[bytes]], until: float) -> list[Any]:
        pool = self._pool.get()
        if self._server.may_move:
            self._server.find_master(until)
        with translated(step, may_have_run=False):
            connection = pool.take(until)
        with translated(step):
            try:
                connection._sock.settimeout(clock.seconds_left(until))
                texts = [b"*%d\r\n%s" % (len(command), b"".join(command)) for command in commands]
                connection.send_packed_command([b"".join(texts)], check_health=False)
                answers = [self._answer(connection, until) for _ in commands]
            except _AWAY:
                self._server.lost(connection)
                pool.drop(connection)
                raise
            except BaseException:
                # The call was interrupted; that says nothing about the server.
                pool.drop(connection)
                raise
            refused = [answer for answer in answers if isinstance(answer, redis.ResponseError)]
            for error in refused:
                self._server.refused(connection, error)
            pool.give(connection)
            # Do not use it from here on: another call may have it already.
            if refused:
                raise refused[0]
            return answers

    def _answer(self, connection: Any, until: float) -> Any:
        """Return the next answer; an error is returned too, so that later answers are read."""
        if self._server.may_move:
            self._server.wait(connection, until)
        connection._sock.settimeout(clock.seconds_left(until))
        try:
            return connection.read_response()
        except redis.ResponseError as error:
            return error

    def dedicated(self) -> Any:
        """Return a connected redis-py connection to block on; the caller closes it."""
        # In a Cluster, each node passes on what is published.
        connection = self._server.known().connection(
            min(self._reach, self._timeout or defaults.TIMEOUT)
        )
        try:
            connection.connect()
        except BaseException:
            connection.disconnect()
            raise
        return connection

    def herald(self) -> Listener | None:
        """Return the listener for a change of address, if the server can move."""
        return self._server.herald()

    def is_current(self, dedicated: Any) -> bool:
        """Whether such a connection still leads to the server; after a failover it does not."""
        return self._server.is_current(dedicated) or self._server.is_shared(dedicated)

    def close(self) -> None:
        """Close idle connections; the next command opens new ones."""
        self.pool.close()
        self._server.close()


@contextmanager
def translated(step: str, *, may_have_run: bool = True) -> Iterator[None]:
    """Translate redis-py's errors into this package's.

    Args:
        step: The step's name in the error.
        may_have_run: Whether a command was sent and not answered.
    """
    try:
        yield
    except redis.exceptions.NoScriptError:
        raise
    except _AWAY as error:
        raise StoreUnavailable(step, str(error), may_have_run) from error
    except redis.exceptions.RedisError as error:
        refusal = refusal_of(error)
        why = str(error) if refusal is None else why_of(error)
        if refusal is Refusal.FULL:
            raise StoreFull(step, why) from error
        if refusal is Refusal.AWAY:
            raise StoreUnavailable(step, why, False) from error
        if refusal is Refusal.RESHARDED:
            _, ours, theirs = why.split()
            raise StoreDiffers("delayq_shards", theirs, ours) from error
        raise StoreError(step, why) from error
