"""The scanner: delivers due tasks, and sleeps until the next one.

    start:   joins the store; logs one line about it, and a warning for each risk
    outbox:  a thread:  owed by a canceller --> result backend --> mark_stored
    loop:    for each shard whose turn has come, batch after batch until none is left:
                 push due tasks to lists of this Redis
                 take back leases that ran out; relay tasks for other brokers
             wait until the earliest of: next due time, lease deadline, wake-up, safety scan
    once:    ``hand_over`` delivers what is due now, without a loop

Any number of scanners may run at once; there is no leader. In a Cluster, a node that does not
answer, or refuses, delays only its own shards; see ``contact.py``. The scanner uses neither Redis,
Celery nor kombu: its caller passes the shards' steps and relays, and the wake-up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from .. import clock
from ..errors import BrokerDown, StoreDiffers, StoreError, StoreUnavailable
from ..hooks import Hooks
from ..servers.endpoint import Address, Server, shown
from ..services import Services
from ..store.counts import sum_of, union_of
from ..store.delivery import ScannerSteps, Seen, restarted
from ..store.values import Cancelled
from ..store.wakeup import Wakeup
from ..text import logger_of
from ..threads import OwnThread, random
from .contact import ELECTION, Away, Backoff, Contact
from .relay import Link, Relay, report

logger = logger_of(__name__)


class Start:
    """A scanner's start: joins the store and logs it, once.

    Args:
        steps_by_shard: The scanner's steps, of each shard.
        store: The store's URL, without secrets.
        prefix: The prefix of its keys.
        way: How due tasks reach their queues, in words.
    """

    def __init__(
        self, steps_by_shard: Sequence[ScannerSteps], *, store: str, prefix: str, way: str
    ) -> None:
        self._steps_by_shard = steps_by_shard
        self._store = store
        self._prefix = prefix
        self._way = way
        self._is_said = False

    @classmethod
    def of(cls, services: Services, steps_by_shard: Sequence[ScannerSteps]) -> Start:
        """Return the start of an app's scanner."""
        settings = services.settings
        return cls(
            steps_by_shard, store=services.endpoint.url, prefix=settings.prefix, way=_way(services)
        )

    def join(self) -> None:
        """Join the store and log it, unless that is done.

        Raises:
            StoreUnavailable: the store is down; the log line comes when it is back.
            StoreDiffers: this process would use the store in another way than the others.
        """
        if self._is_said:
            return
        self._steps_by_shard[0].meet()
        with suppress(StoreUnavailable):  # of another shard, which the scan will find as well
            self._say()

    def _say(self) -> None:
        for steps in self._steps_by_shard:
            steps.join()
        waiting = self._waiting()
        self._is_said = True
        name = self._steps_by_shard[0].name
        facts = (name, self._store, self._prefix, self._way, waiting)
        logger.info("scanner %s started: store %s, prefix %s, %s; %s", *facts)
        # A proxy may close a connection that asks this; tasks need no answer.
        with suppress(StoreUnavailable):
            nodes = {steps.node: steps for steps in self._steps_by_shard}
            for node, steps in nodes.items():
                where = f"node {shown(*node)}: " if node and len(nodes) > 1 else ""
                for line in steps.risks():
                    logger.warning("%s%s; %s", where, line.found, line.advice)

    def overdue(self) -> int | None:
        """Return how many tasks are overdue; ``None`` without the permission to count them.

        Raises:
            StoreUnavailable: the store is down.
        """
        try:
            return sum_of([steps.counts() for steps in self._steps_by_shard]).overdue
        except StoreUnavailable:
            raise
        except StoreError:
            return None

    def _waiting(self) -> str:
        try:
            counts = sum_of([steps.counts() for steps in self._steps_by_shard])
            pauses = union_of([steps.pauses() for steps in self._steps_by_shard])
        except StoreUnavailable:
            raise
        except StoreError as error:
            return f"waiting tasks unknown: {error}"  # delivery does not need this permission
        dead = f", {counts.dead} dead" if counts.dead else ""
        held = ", ".join(pause.what for pause in pauses if not pause.resumed)
        paused = f"; paused: {held} ({counts.paused} due)" if held else ""
        return f"{counts.scheduled} waiting, {counts.overdue} overdue{dead}{paused}"


def _way(services: Services) -> str:
    if services.store_is_broker:
        return "hands over directly"
    broker = services.broker
    return f"relays to the broker {broker.kind} on {broker.hosts}"


INTERVAL = 30.0  # seconds between two checks

Mark = Callable[[Cancelled], bool]


class Outbox:
    """Stores ``REVOKED`` if a canceller could not: it was killed, or its result backend was down.

    A result backend that is down may take minutes to fail, so this has a thread of its own.

    Args:
        steps_by_shard: The steps of each shard, over a connection of their own.
        mark: Stores ``REVOKED`` for a task; returns whether that is done.
        take_back: Resets it for a task whose id was scheduled anew meanwhile.
    """

    def __init__(
        self,
        steps_by_shard: Sequence[ScannerSteps],
        mark: Mark,
        take_back: Callable[[Cancelled], object] = lambda _: None,
    ) -> None:
        self._steps_by_shard = steps_by_shard
        self._mark = mark
        self._take_back = take_back
        self._stopping = threading.Event()
        self._wanted = threading.Event()
        self._thread = OwnThread("delayq-outbox", self.run, self._stopping)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End after the current task; wait at most *timeout* seconds."""
        self._stopping.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def wake(self) -> None:
        """Check at once, as a task was skipped just now."""
        self._wanted.set()

    def run(self) -> None:
        """Store missing ``REVOKED`` until :meth:`stop`."""
        while True:
            self._wanted.wait(INTERVAL * random.uniform(0.8, 1.0))
            self._wanted.clear()
            if self._stopping.is_set():
                break
            while self.drain():
                pass
        for steps in self._steps_by_shard:
            steps.close()

    def drain(self) -> bool:
        """Store ``REVOKED`` for one batch of tasks; return whether there may be more."""
        return any(self._tried(steps) for steps in self._steps_by_shard)

    def _tried(self, steps: ScannerSteps) -> bool:
        try:
            return self._drain(steps)
        except StoreError as error:
            logger.debug("cannot read which tasks lack REVOKED: %s", error)
            return False

    def _drain(self, steps: ScannerSteps) -> bool:
        owed = steps.owed()
        done = []
        for cancelled in owed:
            if self._stopping.is_set():
                break
            if self._mark(cancelled):
                done.append(cancelled)
        if done:
            anew = steps.mark_stored(done)
            for entry in done:
                if entry.task_id in anew:
                    self._take_back(entry)
        return bool(owed) and len(done) == len(owed)


GRACE = 0.25  # seconds that a scanner gives the one whose timer is set for the next due time
# A thousand scanners must not cost Redis ten times as much as a hundred. So from these numbers of
# scanners on, all together look as often as these would: for safety, and after a grace.
SAFETY_LOOKS, GRACE_LOOKS = 100, 10
LONGEST = 28.0  # most seconds that this makes a sleep: some less than a connection lasts unused


class _Shard:
    """A shard as a scanner sees it; its next turn is at ``up_at``, by the monotonic clock."""

    def __init__(self, relay: Relay) -> None:
        self.steps: ScannerSteps = relay.steps
        self.relay = relay
        self.up_at = 0.0
        self.scanners = 0  # alive at the last heartbeat
        self.pauses = Backoff(longest=ELECTION)


class Parts(NamedTuple):
    """The parts of a scanner that depend on the store's number of shards; see :class:`Scanner`."""

    relays: Sequence[Relay]
    wakeup: Wakeup
    outbox: Outbox | None = None
    start: Start | None = None


class Scanner:
    """One scanner, to be run in a thread of its own.

    Args:
        relays: The relay of each shard, with the shard's steps; all over one link to the broker.
        wakeup: Listens for all shards.
        safety_interval: Seconds after which it scans even if nothing woke it.
        lease: Seconds for which a claim holds.
        hooks: Called with what happens to tasks.
        outbox: Stores ``REVOKED`` beside it.
        start: Logs what it found after the first scan.
        contacts: The contact with the store, and with the broker.
        anew: Returns other parts if the store has another number of shards than the given one.
    """

    def __init__(
        self,
        relays: Sequence[Relay],
        wakeup: Wakeup,
        *,
        safety_interval: float,
        lease: float,
        hooks: Hooks,
        outbox: Outbox | None = None,
        start: Start | None = None,
        contacts: tuple[Contact, Contact] | None = None,
        anew: Callable[[int], Parts | None] = lambda _: None,
    ) -> None:
        self._stopping = threading.Event()
        self._use(Parts(relays, wakeup, outbox, start))
        self._anew = anew
        self._safety_interval = safety_interval
        self._lease = lease
        self._hooks = hooks
        self._thread = OwnThread("delayq-scanner", self.run, self._stopping, self._take_over)
        self._store, self._broker = contacts or (
            Contact("store", "delayq_url"),
            Contact("broker", "broker_url"),
        )
        self._relay_again = 0.0
        self._reachable = True
        self._looked = threading.Event()
        self._differs: StoreDiffers | None = None

    def _use(self, parts: Parts) -> None:
        relays, self._wakeup, self._outbox, self._start = parts
        self._shards = [_Shard(relay) for relay in relays]
        self._turns = list(self._shards)
        self._name = self._first_name = self._shards[0].steps.name
        self._away = Away(self._stopping, self._wakeup.interrupt)

    def start(self) -> None:
        """Run in a thread; return at once, whether or not Redis can be reached."""
        self._thread.start()
        if self._outbox is not None:
            self._outbox.start()

    def wait_for_first_scan(self, timeout: float) -> None:
        """Wait until the first scan was attempted, *timeout* seconds at most.

        Raises:
            StoreDiffers: this process may not use the store; it is in the log, too.
        """
        self._looked.wait(timeout)
        if self._differs is not None:
            raise self._differs

    def stop(self, timeout: float = 10.0) -> None:
        """Claim nothing more, give back unpublished entries, and end; wait *timeout* s at most."""
        self._stopping.set()
        self._wakeup.interrupt()
        until = clock.monotonic() + timeout
        self._thread.join(timeout)
        if self._outbox is not None:
            self._outbox.stop(max(0.0, until - clock.monotonic()))

    def run(self) -> None:
        """Scan until :meth:`stop`. An exception in a pass is logged and does not end it."""
        while not self._stopping.is_set():
            try:
                self._look_first()
                # Before the scan, so that no wake-up is missed from here on.
                if self._wakeup.listen():
                    self._scan_shards(range(len(self._shards)))
                self._scan_shards(self._wakeup.wait(self._pass()))
                if not self._away.shards:
                    self._store.backoff.reset()
                self._reachable = True
            except Exception as error:
                seconds = self._failed(error)
                # Only now: a caller that waits for the first scan may end the process, and the log
                # has the reason by now.
                self._looked.set()
                self._rest(seconds)
        self._end()

    def _take_over(self, restarts: int) -> None:
        """Follow a thread that has ended: drop its connections, and take a name of its own."""
        self._let_go()
        self._name = restarted(self._first_name, restarts)
        self._hooks.restarted(self._name)
        for shard in self._shards:
            shard.steps.go_on_as(self._name)
        self._wakeup.name_is(self._name)

    def _rest(self, seconds: float) -> None:
        try:
            self._wakeup.rest(seconds)
        except Exception as error:
            logger.error("a pause failed; the scanner goes on", exc_info=error)
            self._stopping.wait(seconds)

    def _failed(self, error: Exception) -> float:
        """Log why a pass failed; return how many seconds to wait before the next one."""
        if isinstance(error, StoreUnavailable):
            self._reachable = False
            return self._store.lost(error.why)
        if isinstance(error, StoreDiffers) and self._is_renewed():
            # Two numbers of shards may refuse for a moment: those before, and those after.
            return self._store.backoff.next()
        if isinstance(error, StoreDiffers) and not self._looked.is_set():
            self._differs = error
        backoff = self._store.backoff
        is_news, seconds = backoff.is_news(clock.monotonic(), type(error)), backoff.next()
        level = logging.ERROR if is_news else logging.DEBUG
        if isinstance(error, StoreDiffers):
            logger.log(level, "%s", error)
        elif isinstance(error, StoreError):
            # Redis refused, and the error has its reason: a traceback would add nothing.
            logger.log(level, "%s; retrying in %.1f s", error, seconds)
        else:
            logger.log(level, "a pass failed; the scanner goes on", exc_info=error)
        return seconds

    def _is_renewed(self) -> bool:
        """Go on with the shards that the store has, if they are others; return whether they are."""
        parts = self._anew(len(self._shards))
        if parts is None:
            return False
        self._close()
        if self._outbox is not None:
            self._outbox.stop(0.0)
        self._use(parts)
        if self._outbox is not None:
            self._outbox.start()
        return True

    def _look_first(self) -> None:
        if self._start is not None and not self._away.shards:
            self._start.join()
        self._looked.set()

    def _scan_shards(self, shards: Iterable[int]) -> None:
        for number in shards:
            if self._shards[number] not in self._away.shards:
                self._shards[number].up_at = 0.0

    def _pass(self) -> float:
        """Deliver all due tasks; return for how many seconds there is nothing to do."""
        while not self._stopping.is_set():
            now = clock.monotonic()
            ready = [shard for shard in self._turns if shard.up_at <= now]
            if not ready:
                up_at = min(shard.up_at for shard in self._turns)
                return min(up_at - now, max(self._safety_interval, LONGEST))
            # One step each, so that a backlog in one shard delays no other. Each round begins with
            # another shard, or all scanners would go from shard to shard together.
            self._turns.append(self._turns.pop(0))
            for shard in ready:
                # A turn before may have found that its node is away.
                if shard.up_at <= now and not self._stopping.is_set():
                    self._turn(shard)
            if len(self._shards) > 1:
                self._scan_shards(self._wakeup.wait(0))
        return 0.0

    def _turn(self, shard: _Shard) -> None:
        """Make a step; if the shard's node is away, leave out all shards of that node."""
        node = shard.steps.node
        try:
            self._step(shard)
        except StoreUnavailable as error:
            # The shard itself may have another node by now.
            lost = (None, node, shard.steps.node)
            there = [each for each in self._shards if each.steps.node in lost]
            if len(there) == len(self._shards):
                raise
            self._store.lost(error.why)
            self._away.add(there)

    def _step(self, shard: _Shard) -> None:
        """Deliver a batch of a shard, which stays ready for the next as long as there is more."""
        shard.up_at = 0.0
        asleep = self._asleep_for(shard)
        relay_in = max(0.0, self._relay_again - clock.monotonic())
        overdue = self._overdue(self._store, shard)
        seen = shard.steps.hand_over(asleep=asleep, relay_in=relay_in, wants=self._hooks.wants)
        shard.scanners = seen.scanners or shard.scanners
        shard.pauses.reset()
        self._away.shards.discard(shard)
        if not self._away.shards:
            self._store.back(overdue)
        report(self._hooks, seen)
        self._look_for_owed(len(seen.skipped))
        more = seen.is_past(seen.due) or seen.is_past(seen.back)
        more = self._take_back(shard, seen) or more
        more = self._relay_due(shard, seen) or more
        if not more:
            shard.up_at = clock.monotonic() + self._idle_for(shard, seen, asleep)

    def _asleep_for(self, shard: _Shard) -> float:
        among_many = min(LONGEST, self._safety_interval * shard.scanners / SAFETY_LOOKS)
        # With jitter, or all scanners of a deployment would scan at the same moment.
        return max(self._safety_interval, among_many) * random.uniform(0.8, 1.0)

    def _overdue(self, contact: Contact, shard: _Shard) -> int | None:
        """How many tasks are overdue, for the log line if contact comes back now."""
        is_whole = self._away.shards <= {shard}
        is_back = self._start is not None and contact.is_lost and is_whole
        return self._start.overdue() if self._start is not None and is_back else None

    def _look_for_owed(self, skipped: int) -> None:
        if skipped and self._outbox is not None:
            self._outbox.wake()

    def _take_back(self, shard: _Shard, seen: Seen) -> bool:
        left = seen.seconds_until(seen.leased)
        # Further off than any lease can be: Redis's clock was set back, which the script handles.
        if left is None or 0 < left <= self._lease:
            return False
        reclaimed = shard.steps.reclaim()
        if reclaimed:
            self._hooks.reclaimed(reclaimed)
        for task_id in reclaimed:
            logger.warning("task %s: its lease ran out; it may be published twice", task_id)
        return bool(reclaimed)

    def _relay_due(self, shard: _Shard, seen: Seen) -> bool:
        """Relay; return whether it did or tried to: others may have fallen due, so scan again."""
        if not seen.is_past(seen.relay) or clock.monotonic() < self._relay_again:
            return False
        overdue = self._overdue(self._broker, shard)
        try:
            self._look_for_owed(shard.relay.batch(self._stopping.is_set).skipped)
        except BrokerDown as error:
            self._hooks.broker_down()
            # A broker that takes some messages and then loses a reply is up: pauses must not grow.
            if error.sent:
                self._broker.backoff.reset()
                self._broker.back(overdue)
            self._relay_again = clock.monotonic() + self._broker.lost(error.why)
            return True
        self._broker.backoff.reset()
        self._broker.back(overdue)
        return True

    def _idle_for(self, shard: _Shard, seen: Seen, asleep: float) -> float:
        relay = seen.seconds_until(seen.relay)
        if relay is not None:
            relay = max(relay, self._relay_again - clock.monotonic())
        # Another scanner has set its timer. In case it is dead, this one wakes a little later.
        most = max(2.0, shard.scanners / GRACE_LOOKS)
        grace = 0.0 if seen.has_timer else GRACE * random.uniform(1.0, most)
        if shard.scanners > SAFETY_LOOKS:
            # In the same instant of a second as the others: Redis wakes once for some forty looks.
            asleep -= (seen.now_us / 1_000_000 + asleep) % 1.0
        heads = (seen.due, seen.leased, seen.back)
        waits = (*map(seen.seconds_until, heads), relay)
        wanted = [max(0.0, wait) + grace for wait in waits if wait is not None]
        return min([asleep - (clock.monotonic() - seen.read_at), *wanted])

    def _let_go(self) -> None:
        for shard in self._shards:
            shard.relay.close()
        try:
            # A Redis that did not answer would keep a stopping worker waiting again; without a
            # leave, this scanner's heartbeat runs out by itself.
            for shard in self._shards if self._reachable else ():
                if shard not in self._away.shards:
                    shard.steps.leave()
        except Exception as error:
            logger.debug("leaving: %r", error)

    def _end(self) -> None:
        self._close()
        logger.info("scanner %s stopped", self._name)

    def _close(self) -> None:
        self._let_go()
        for shard in self._shards:
            shard.steps.close()
        self._wakeup.close()


PUBLISH_TIMEOUT = 10.0  # seconds for a window of messages, and well inside a lease


def new_scanner(services: Services, mark: Mark | None = None) -> Scanner:
    """Make a scanner with its own connections; *mark* stores ``REVOKED`` for a cancelled task."""
    settings, (relays, wakeup, outbox, start) = services.settings, _parts(services, mark)

    def anew(shards: int) -> Parts | None:
        return None if services.settings.shards == shards else _parts(services, mark)

    return Scanner(
        relays,
        wakeup,
        safety_interval=settings.safety_interval,
        lease=settings.lease,
        hooks=services.hooks,
        outbox=outbox,
        start=start,
        contacts=_contacts(services),
        anew=anew,
    )


def _parts(services: Services, mark: Mark | None) -> Parts:
    relays = new_relays(services)
    steps_by_shard = [relay.steps for relay in relays]
    outbox = None if mark is None else Outbox(services.steps_by_shard(), mark, services.take_back)
    return Parts(
        relays, services.wakeup(steps_by_shard[0].name), outbox, Start.of(services, steps_by_shard)
    )


def _contacts(services: Services) -> tuple[Contact, Contact]:
    return (
        Contact(*services.named_store, _backoff(services.endpoint)),
        Contact(*services.named_broker, _backoff(services.broker.endpoint)),
    )


def _backoff(server: Server | None) -> Backoff:
    # If another server may take over, find it soon after it has.
    return Backoff(longest=ELECTION) if server is not None and server.may_move else Backoff()


def new_relays(services: Services) -> list[Relay]:
    """Make a relay for each shard, with their own connections to the store and the broker."""
    lease = services.settings.lease
    link = Link(services.app.connection_for_write, timeout=min(PUBLISH_TIMEOUT, lease * 0.3))
    steps_by_shard = services.steps_by_shard()
    return [Relay(steps, link, lease=lease, hooks=services.hooks) for steps in steps_by_shard]


def hand_over(services: Services) -> int:
    """Deliver all due tasks once; return how many were delivered.

    In a Cluster, a node that is away delays only its own shards; then it raises at the end.

    Raises:
        BrokerDown: the broker cannot be reached; its tasks keep waiting.
        StoreError: a step failed.
    """
    shards = services.settings.shards
    try:
        return _hand_over_each(services)
    except StoreDiffers:
        if services.settings.shards == shards:
            raise
    return _hand_over_each(services)


def _hand_over_each(services: Services) -> int:
    away = set[Address | None]()
    went, failed = 0, None
    for relay in new_relays(services):
        steps = relay.steps
        node = steps.node
        if node in away:
            continue
        try:
            went += _hand_over_shard(relay, services.hooks)
        except BrokerDown as error:
            services.hooks.broker_down()
            failed = error  # direct deliveries go on
        except StoreUnavailable as error:
            failed = error
            away |= {None, node, steps.node}
    if failed is not None:
        raise failed
    return went


def _hand_over_shard(relay: Relay, hooks: Hooks) -> int:
    steps = relay.steps
    try:
        went = _hand_over_all(relay, hooks)
        steps.leave()
    except StoreUnavailable:
        raise
    except Exception:
        # Otherwise it would count as alive.
        with suppress(StoreError):
            steps.leave()
        raise
    finally:
        relay.close()
        steps.close()
    return went


def _hand_over_all(relay: Relay, hooks: Hooks) -> int:
    steps = relay.steps
    while reclaimed := steps.reclaim():
        hooks.reclaimed(reclaimed)
    went, more = 0, True
    while more:
        seen = steps.hand_over(wants=hooks.wants)
        report(hooks, seen)
        went, more = went + seen.handed_over, seen.is_past(seen.due) or seen.is_past(seen.back)
    more = seen.is_past(seen.relay)
    while more:
        batch = relay.batch(lambda: False)
        went, more = went + batch.sent, batch.claimed + batch.others > 0
    return went
