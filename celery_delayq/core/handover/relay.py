"""Claims, publishes and acks: the delivery to anything but a list in the store's own Redis.

At least once. Publish first, ack second: a crash in between publishes twice, the other order
would lose the task. A claim carries a fencing token, which the store checks at ack and nack,
so entries that another scanner took over meanwhile stay as they are.

What a hand-over did not deliver is logged: dead tasks, refused tasks, tasks that were too late.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from .. import clock
from ..errors import BrokerDown
from ..hooks import Hooks
from ..message.outgoing import Relayed
from ..store.delivery import LONGEST_WAIT, MAX_REFUSALS, ScannerSteps
from ..store.values import LeasedEntry, Seen
from ..text import logger_of
from .publishers import Link, Verdict

logger = logger_of(__name__)


DIRECT, RELAY = "direct", "relay"  # the ways out, by the names that hooks get


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
            raise BrokerDown(error.why, len(verdicts["sent"])) from error
        finally:
            # Whatever happened: a sent entry without an ack would be sent again.
            self._resolve(verdicts)
        return len(verdicts["sent"])

    def _resolve(self, verdicts: dict[str, list[tuple[LeasedEntry, Verdict]]]) -> None:
        sent = [entry for entry, _ in verdicts["sent"]]
        if self.steps.ack(sent) < len(sent):
            logger.warning("a lease ran out before its tasks were acknowledged; some may run twice")
        self._tell(sent, verdicts["unknown"])
        for word in ("unknown", "unsent"):
            self.steps.nack(word, [entry for entry, _ in verdicts[word]])
        for word in ("refused", "denied", "dead"):
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
        tries = (entry.attempts if word == "denied" else entry.refusals) + 1
        if word == "dead" or (word == "refused" and tries >= MAX_REFUSALS):
            self.steps.nack("dead", [entry], uncertain=uncertain, reason=reason)
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
