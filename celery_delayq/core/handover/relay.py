"""The relay: delivers due tasks to anything but a list in the store's own Redis, at least once.

    claim --> Link: windows of entries --> a publisher --> a verdict on each
      ^                                                       |
      |                 gone <------- ack ---- sent ----------+
      +-- at once --- waiting <----- nack ---- unknown, unsent
      '-- later ----- waiting <----- nack ---- refused, denied
                        dead <------ nack ---- dead, or refused too often

Publish first, ack second: a crash in between publishes twice, the other order would lose the task.
A claim carries a fencing token, which the store checks at ack and nack, so entries that another
scanner took over meanwhile stay as they are.

After any failure the link's connection is discarded: its late answers would be about messages that
another scanner may hold by then.

At the end: what a hand-over tells the log and the hooks, by either way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kombu import Connection

from .. import clock
from ..errors import BrokerDown
from ..hooks import Hooks
from ..message.outgoing import Relayed
from ..store.delivery import LONGEST_WAIT, MAX_REFUSALS, LeasedEntry, ScannerSteps, Seen
from ..text import counted, logger_of
from .publishers import (
    CONNECT_TIMEOUT,
    DEAD,
    DENIED,
    IDLE,
    REFUSED,
    SENT,
    UNKNOWN,
    UNSENT,
    OneByOne,
    Verdict,
    bounded,
    connect,
    publisher_for,
)

logger = logger_of(__name__)

DIRECT, RELAY = "direct", "relay"  # the ways out, by the names that hooks get

BATCH = 1000  # entries under one lease, which a crash between publish and ack may repeat
LEASE_MARGIN = 0.5  # part of a lease after which nothing more is published under it


class Batch(NamedTuple):
    """How many entries were claimed, and how many of them the broker has.

    ``others``: how many more were due, but are dead, parked or ``skipped``.
    """

    claimed: int
    sent: int
    others: int = 0
    skipped: int = 0


class Relay:
    """Publishes due entries under a lease; used by one scanner."""

    def __init__(self, steps: ScannerSteps, link: Link, *, lease: float, hooks: Hooks) -> None:
        self.steps = steps
        self._link = link
        self._lease = lease
        self._hooks = hooks

    def batch(self, stopping: Callable[[], bool]) -> Batch:
        """Relay one batch, unless *stopping*; return how many entries it handled.

        Raises:
            BrokerDown: nothing more can be published; claimed entries are given back.
        """
        # Probe first: a broker that is down must cost no entry a lease or an attempt.
        self._link.prepare()
        # Before the claim, so that the time runs out here before it does in Redis.
        started = clock.monotonic()
        claimed = self.steps.claim(BATCH)
        tell(self._hooks, claimed.dead)
        tell_skipped(self._hooks, claimed.skipped)
        until = started + self._lease * LEASE_MARGIN
        sent = self._publish_all(claimed.entries, lambda: stopping() or clock.monotonic() > until)
        count = len(claimed.entries)
        return Batch(count, sent, claimed.met - count, len(claimed.skipped))

    def _publish_all(self, claimed: list[LeasedEntry], out_of_time: Callable[[], bool]) -> int:
        verdicts: dict[str, list[tuple[LeasedEntry, Verdict]]] = defaultdict(list)
        try:
            for entry, verdict in self._link.publish(claimed, out_of_time):
                verdicts[verdict.word].append((entry, verdict))
        except BrokerDown as error:
            raise BrokerDown(error.why, len(verdicts[SENT])) from error
        finally:
            # Whatever happened: a sent entry without an ack would be sent again.
            self._resolve(verdicts)
        return len(verdicts[SENT])

    def _resolve(self, verdicts: dict[str, list[tuple[LeasedEntry, Verdict]]]) -> None:
        sent = [entry for entry, _ in verdicts[SENT]]
        if left := len(sent) - self.steps.ack(sent):
            logger.warning(
                "the broker has confirmed %s without a lease: it ran out, and they may run twice; "
                "or a worker has already deferred them",
                counted(left),
            )
        self._tell(sent, verdicts[UNKNOWN])
        for word in (UNKNOWN, UNSENT):
            self.steps.nack(word, [entry for entry, _ in verdicts[word]])
        for word in (REFUSED, DENIED, DEAD):
            for entry, verdict in verdicts[word]:
                self._refuse(entry, verdict)

    def _tell(self, sent: list[LeasedEntry], unknown: list[tuple[LeasedEntry, Verdict]]) -> None:
        if sent and self._hooks.hears_handed_over():
            self._hooks.handed_over([entry.task_id for entry in sent])
        if sent and self._hooks.hears_left():
            self._hooks.left(RELAY, [entry.late for entry in sent])
        for entry, verdict in unknown:
            logger.warning(
                "task %s: whether it was sent is unknown: %s", entry.task_id, verdict.reason
            )
        if unknown:
            self._hooks.uncertain(len(unknown))

    def _refuse(self, entry: LeasedEntry, verdict: Verdict) -> None:
        word, reason, uncertain = verdict
        tries = (entry.attempts if word == DENIED else entry.refusals) + 1
        if word == DEAD or (word == REFUSED and tries >= MAX_REFUSALS):
            self.steps.nack(DEAD, [entry], uncertain=uncertain, reason=reason)
            tell(self._hooks, [(entry.task_id, reason)])
            return
        wait = min(LONGEST_WAIT, 2.0 ** min(tries, 10))
        logger.warning(
            "task %s: attempt %d was refused, next in %.0f s: %s, for the queue %s: %s",
            entry.task_id,
            entry.attempts + 1,
            wait,
            *_names_of(entry),
            reason,
        )
        self._hooks.refused(RELAY, 1)
        self.steps.nack(word, [entry], wait=wait, uncertain=uncertain, reason=reason)

    def close(self) -> None:
        self._link.close()


def _names_of(entry: LeasedEntry) -> tuple[str, str]:
    """The names of an entry's task and of its queue, for the log."""
    try:
        relayed = Relayed.parse(entry.destination, entry.message)
        return relayed.options["headers"]["task"], relayed.route.routing_key
    except Exception:  # the message is not one of Celery's
        return "a task without a name", entry.destination


FIRST_WINDOW, WINDOW = 100, 1000  # messages under way at once: at first, at most
DENIED_FOR = 10.0  # seconds for which a missing right is not asked for again
SLOW = 1.0  # if a window takes more seconds, the next one is half as large


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


def tell(hooks: Hooks, dead: Iterable[tuple[str, str]]) -> None:
    """Log each (task id, reason), and call the hooks."""
    for task_id, reason in dead:
        logger.error("task %s is dead: %s; runbook: DelayqDead", task_id, reason)
        hooks.dead(task_id, reason)


def tell_skipped(hooks: Hooks, skipped: Iterable[tuple[str, str]]) -> None:
    """Log each (task id, why) that was skipped as too late, and call the hooks."""
    for task_id, why in skipped:
        logger.info("task %s: %s", task_id, why)
        hooks.skipped(task_id, why)


def report(hooks: Hooks, seen: Seen) -> None:
    """Report the results of a direct hand-over."""
    if seen.ids:
        hooks.handed_over(seen.ids)
    if seen.late:
        hooks.left(DIRECT, seen.late)
    for reason, count in seen.refused:
        hooks.refused(DIRECT, count)
        what = "1 task was refused by its list and keeps waiting"
        if count > 1:
            what = f"{count} tasks were refused by their list and keep waiting"
        logger.warning("%s: %s", what, reason)
    tell(hooks, seen.dead)
    tell_skipped(hooks, seen.skipped)
