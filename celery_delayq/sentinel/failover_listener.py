"""Hearing from a sentinel that a group has another master, at the moment at which it has.

    Sentinel --PUBLISH +switch-master--> SwitchHerald --> the group knows the new address

Scanners wait on it beside their subscription; callers look whether something was said, and have no
thread for it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

from .. import clock
from ..logs import logger_of
from ..servers.endpoint import Address, Endpoint
from ..servers.moving import FAILED, WRONG

LISTEN_AGAIN = 5.0  # seconds after which another sentinel is listened to; or one has to answer
SIGN_AFTER = 30.0  # seconds of silence after which it is asked for a sign of life
SWITCH_WORDS = 5  # +switch-master: name, the old address, the new one

logger = logger_of(__name__)


class FailoverListener:
    """Hears from one sentinel, whichever, when its group has another master; one thread's.

    Nothing depends on it: what is not heard is found out by whoever meets a closed connection, a
    replica, or silence. A sentinel that is gone or silent is replaced by the next one.

    Args:
        name: The master's.
        sentinels: Whom to listen to.
        seconds: How long one of them may take for each step.
        check: Raises an error of redis-py's where the sentinel that a connection leads to is not to
            be believed; then the next one is taken, as if it were away.
        moved: Is told the new master's address, and that of the one before.
    """

    def __init__(
        self,
        name: str,
        sentinels: Sequence[Endpoint],
        seconds: float,
        check: Callable[[Any], None],
        moved: Callable[[Address, Address], None],
    ) -> None:
        self._name = name
        self._sentinels = sentinels
        self._seconds = seconds
        self._check = check
        self._moved = moved
        # Not all processes listen to the first one.
        self._turn = os.getpid()
        self._again = 0.0
        self._is_asked, self._sign_by = False, 0.0
        self._connection: Any = None

    @property
    def sockets(self) -> list[Any]:
        """What becomes readable when there is something to :meth:`hear`."""
        return [] if self._connection is None else [self._connection._sock]

    def listen(self, seconds: float = math.inf) -> None:
        """Subscribe, unless that is done; takes a moment at most, and says nothing of failures.

        Args:
            seconds: How long the sentinel may take for each step, at most.
        """
        now = clock.monotonic()
        if self._connection is not None and now >= self._sign_by:
            self._ask_for_sign(now)
        if self._connection is not None or now < self._again:
            return
        self._again = now + LISTEN_AGAIN
        sentinel = self._sentinels[self._turn % len(self._sentinels)]
        self._turn += 1
        connection = sentinel.connection(min(seconds, self._seconds))
        try:
            connection.connect()
            self._check(connection)
            connection.send_command("SUBSCRIBE", "+switch-master")
            connection.read_response()
        except (*FAILED, *WRONG) as error:
            connection.disconnect()
            logger.debug("sentinel %s cannot be listened to: %s", sentinel.where, error)
            return
        except BaseException:
            connection.disconnect()
            raise
        self._connection = connection
        self._note_sign()

    def hear(self) -> bool:
        """Read what is there; whether another has become the master."""
        is_moved = False
        try:
            while self._connection is not None and self._connection.can_read():
                kind, *rest = self._connection.read_response()
                words = rest[-1].decode(errors="replace").split() if kind == b"message" else []
                if len(words) == SWITCH_WORDS and words[0] == self._name:
                    self._moved((words[3], int(words[4])), (words[1], int(words[2])))
                    is_moved = True
                self._note_sign()
        except (*FAILED, *WRONG) as error:
            logger.debug("a sentinel is not heard any more: %s", error)
            self.close()
        except BaseException:
            self.close()  # it was interrupted in the midst of a word
            raise
        return is_moved

    def _ask_for_sign(self, now: float) -> None:
        if self._is_asked:
            self.close()
            return
        self._is_asked, self._sign_by = True, now + LISTEN_AGAIN
        try:
            self._connection.send_command("PING")
        except FAILED:
            self.close()

    def _note_sign(self) -> None:
        self._is_asked, self._sign_by = False, clock.monotonic() + SIGN_AFTER

    def close(self) -> None:
        """Listen no more; the next :meth:`listen` does again, soon."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()
