"""Hears from a sentinel at once when a group has a new master.

    sentinel --PUBLISH +switch-master--> FailoverListener --> the group knows the new address

Scanners wait on it beside their subscription. Callers check for messages, without a thread.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

from ...core import clock
from ...core.servers.endpoint import Address, Endpoint, Listener
from ...core.text import logger_of
from ..moving import FAILED, WRONG

LISTEN_AGAIN = 5.0  # seconds before the next sentinel is tried; also for an answer to a ping
SIGN_AFTER = 30.0  # seconds of silence before a ping
SWITCH_WORDS = 5  # +switch-master: name, the old address, the new one

logger = logger_of(__name__)


class FailoverListener(Listener):
    """Hears from any one sentinel that its group has a new master; used by one thread.

    It only saves time: without it, a caller learns of the move from a closed connection, a replica
    or silence. If a sentinel is gone or silent, the next one takes its place.

    Args:
        name: The master's name.
        sentinels: The sentinels to listen to.
        seconds: How long one of them may take for each step.
        check: Raises an error of redis-py if the sentinel behind a connection cannot be trusted;
            the next one is tried then, as if it were down.
        moved: Called with the new master's address and the previous one's.
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
        # So that not all processes listen to the first one.
        self._turn = os.getpid()
        self._again = 0.0
        self._is_asked, self._sign_by = False, 0.0
        self._connection: Any = None

    @property
    def sockets(self) -> list[Any]:
        return [] if self._connection is None else [self._connection._sock]

    def listen(self, seconds: float = math.inf) -> None:
        """Subscribe, unless that is done; failures only go to the debug log.

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
            logger.debug("lost the sentinel that was listened to: %s", error)
            self.close()
        except BaseException:
            self.close()  # interrupted in the middle of a message
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
        """Stop listening; the next :meth:`listen` may start again soon."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()
