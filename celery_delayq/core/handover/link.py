"""The scanner's connection to the broker, with a verdict for each message sent over it.

After any failure the connection is discarded: its late answers would be about messages that another
scanner may hold by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kombu import Connection

from .. import clock
from ..errors import BrokerDown
from ..leaves import leaf
from ..message.broker import SENTINEL, credentials_of
from ..store.values import LeasedEntry
from ..text import logger_of
from .confirms import publisher_for
from .publishers import DEAD, DENIED, SENT, UNKNOWN, UNSENT, OneByOne, Verdict

logger = logger_of(__name__)

CONNECT_TIMEOUT = 5.0  # seconds for connecting, all steps included
REACH = 2.0  # most seconds that the broker may take for each step of connecting
IDLE = 10.0  # seconds without use after which a connection may be dead
FIRST_WINDOW, WINDOW = 100, 1000  # messages under way at once: at first, at most
DENIED_FOR = 10.0  # seconds for which a missing right is not asked for again
SLOW = 1.0  # if a window takes more seconds, the next one is half as large


def bounded(connection: Connection, timeout: float, connect_timeout: float) -> Connection:
    """Return a copy of *connection*, not open yet, with limits in seconds for all its waits."""
    reach = min(REACH, connect_timeout)
    copy = connection.clone(connect_timeout=reach, heartbeat=0)
    sockets = {"read_timeout": timeout, "write_timeout": timeout}
    redis = {"socket_timeout": timeout, "socket_connect_timeout": reach}
    transport = copy.transport_options or {}
    # botocore itself would try again for minutes, and an error could be about any of its attempts.
    boto = {"connect_timeout": reach, "read_timeout": timeout, "retries": {"total_max_attempts": 1}}
    options: dict[str, dict[str, Any]] = {
        # A publisher that wants confirms waits for them itself, many at a time.
        "amqp": {"confirm_publish": False, **sockets},
        "redis": {**redis, "retry_on_timeout": False},
        "sqs": {"client-config": {**(transport.get("client-config") or {}), **boto}},
    }
    own = options.get(copy.transport.driver_type, {})
    if _is_group(copy):
        own = {**own, **leaf("sentinel").asked_once(transport)}
    copy.transport_options = {**transport, **own}
    provider = getattr(copy, "credential_provider", None)  # kombu has it from 5.7 on
    if provider is not None:
        copy.credential_provider = credentials_of(provider, "broker_url")
    return copy


def _is_group(connection: Connection) -> bool:
    return bool(connection.transport_cls == SENTINEL)


def connect(connection: Connection, timeout: float) -> None:
    """Open it: try each host once, without a sleep in between, as the caller has a back-off.

    redis-py asks all sentinels in one attempt. If kombu moved on to the next sentinel's URL, it
    would lose the login in the first one.
    """
    hosts = 1 if _is_group(connection) else len(connection.alt or ()) or 1
    connection.ensure_connection(max_retries=hosts - 1, timeout=timeout)


class Link:
    """One connection to the broker, opened when needed, used by one thread.

    Args:
        connect: Makes a connection that is not open yet.
        timeout: Seconds that the broker may take for a window of messages.
    """

    def __init__(self, connect: Callable[[], Connection], *, timeout: float) -> None:
        self._connect = connect
        self._timeout = timeout
        self._connection: Any = None
        self._publisher: OneByOne | None = None
        self._used = 0.0
        self._size = FIRST_WINDOW
        self._denied: dict[str, tuple[float, Verdict]] = {}  # destination -> until when, and why

    def prepare(self) -> None:
        """Make sure that there is a live connection, before a claim.

        Raises:
            BrokerDown: the broker cannot be reached.
        """
        if self._publisher is not None and clock.monotonic() - self._used < IDLE:
            return
        self.close()
        try:
            self._open().probe()
        except Exception as error:
            self.close()
            raise BrokerDown(str(error) or repr(error)) from error

    def _open(self) -> OneByOne:
        self._connection = bounded(self._connect(), self._timeout, CONNECT_TIMEOUT)
        connect(self._connection, CONNECT_TIMEOUT)
        self._publisher = publisher_for(self._connection, self._timeout)
        self._used = clock.monotonic()
        return self._publisher

    def publish(
        self, entries: Sequence[LeasedEntry], out_of_time: Callable[[], bool]
    ) -> Iterator[tuple[LeasedEntry, Verdict]]:
        """Publish entries, window by window; yield a verdict for each.

        Send nothing more once *out_of_time* is true: another scanner may hold the rest by then.

        Raises:
            BrokerDown: at the end, if the broker was lost on the way.
            BaseException: at the end, if the thread was interrupted on the way.
        """
        broken: BaseException | None = None
        now = clock.monotonic()
        self._denied = {to: denial for to, denial in self._denied.items() if denial[0] > now}
        for window in self._windows(entries):
            # RabbitMQ closes the channel over each, and messages under way are lost with it.
            denials = [self._denied.get(entry.destination) for entry in window]
            asked = [entry for entry, denial in zip(window, denials, strict=True) if not denial]
            verdicts = [Verdict(UNSENT)] * len(asked)
            if asked and not broken:
                try:
                    self.prepare()
                    verdicts = [Verdict(UNKNOWN, "publishing was interrupted")] * len(asked)
                    verdicts, lost = self._publish(asked, out_of_time)
                    broken = BrokerDown(lost) if lost else None
                except BaseException as error:
                    # Even if it ends this thread, each entry gets its verdict first.
                    broken = error
            for entry, verdict in zip(asked, verdicts, strict=True):
                if verdict.word == DENIED:
                    self._denied[entry.destination] = clock.monotonic() + DENIED_FOR, verdict
            answers = iter(verdicts)
            for entry, denial in zip(window, denials, strict=True):
                yield entry, denial[1] if denial else next(answers)
        if broken:
            raise broken

    def _publish(
        self, window: Sequence[LeasedEntry], out_of_time: Callable[[], bool]
    ) -> tuple[list[Verdict], str]:
        publisher = self._publisher
        assert publisher is not None  # noqa: S101 (prepare made it)
        started = clock.monotonic()
        verdicts = publisher.publish(window, out_of_time)
        self._used = clock.monotonic()
        if any(verdict.word not in (SENT, DEAD) for verdict in verdicts):
            self.close()
        elif self._used - started > SLOW:
            self._size = max(1, self._size // 2)
        elif len(window) == self._size:
            self._size = min(WINDOW, self._size * 2)
        return verdicts, publisher.lost

    def _windows(self, entries: Sequence[LeasedEntry]) -> Iterator[Sequence[LeasedEntry]]:
        """Yield windows of entries; one that failed before goes alone, to take no others along."""
        fresh = [entry for entry in entries if entry.is_first]
        start = 0
        while start < len(fresh):
            window = fresh[start : start + self._size]
            start += len(window)
            yield window
        for entry in entries:
            if not entry.is_first:
                yield [entry]

    def close(self) -> None:
        """Discard the connection."""
        connection, self._connection, self._publisher = self._connection, None, None
        if connection is not None:
            try:
                connection.collect()
            except Exception as error:
                logger.debug("closing the broker connection: %r", error)
