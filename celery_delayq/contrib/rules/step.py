"""What workers and beat do for rules; it needs no cronsim.

    a thread beside the scanner --a rule is due--> claims it --> a task in the worker's pool: writes
    a beat process --an entry is due--> a rule of its name, set before that? --> not sent

Beside the command ``scan``, which has no pool and forks no process, the thread writes by itself. A
worker and a beat process may both be alive: the latter sends no entry that is a rule.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from celery import Celery, bootsteps
from celery.beat import ScheduleEntry
from celery.schedules import crontab, schedule
from celery.signals import worker_ready

from ...core import clock
from ...core.clock import EPOCH
from ...core.errors import StoreError
from ...core.hooks import Hooks
from ...core.services import HasServices, Services, find
from ...core.store.calls import Shard
from ...core.text import logger_of
from ...core.threads import OwnThread
from .. import rule_store as store
from ..rule_store import Claims, said_of

if TYPE_CHECKING:
    from .declared import Declared
    from .pool import Pool

logger = logger_of(__name__)

# Seconds between two looks while no rule is due: some less than a connection stays open unused.
REST = 28.0
SPREAD = 1.02  # by up to which factor a rest is longer, so that not all writers see a due rule
NAMING = 20.0  # seconds between two times that it names what it declares, at least
# Seconds for which a writer skips a rule whose run it could not make, for each living writer, so
# that all of them together try as often as a single one; and at most.
SKIPPED, LONGEST = 15.0, 300.0
MOST_SKIPPED = 1000
GIVEN_WAY = 2.0  # seconds for which a worker whose pool is busy lets others claim first
NEAR = timedelta(milliseconds=100)  # so late beat may send a slot
AWAY = 30.0  # seconds without a question to a store that is away: beat would send too late
_NO_CRONSIM = "recurring rules need cronsim: pip install 'celery_delayq[rules]'"


class RulesStep(bootsteps.StartStopStep):
    """Looks for rules in a worker that scans."""

    requires = ("celery_delayq.core.integration.delayq:ScannerStep",)
    label = "DelayQ rules"

    def __init__(self, worker: Any, no_delayq: bool = False, **_: Any) -> None:
        services = find(worker.app)
        self.enabled = services is not None and services.has_store and not no_delayq
        self._app = worker.app
        self._pool: Pool | None = None
        if self.enabled:
            self._writer = Writer(worker.app.delayq, partial(self._make_pool, worker))
            worker_ready.connect(self._on_ready)

    def _on_ready(self, sender: Any, **_: Any) -> None:
        # Behind all receivers that the app connected when it was imported.
        if sender.app is self._app:
            self._writer.ready()

    def _make_pool(self, worker: Any) -> Pool:
        from .pool import Pool

        self._pool = Pool(worker)
        return self._pool

    def start(self, _worker: Any) -> None:
        self._writer.start()

    def register_with_event_loop(self, _worker: Any, hub: Any) -> None:
        if self._pool is not None:
            self._pool.listen(hub)

    def stop(self, _worker: Any) -> None:
        self._writer.stop()
        if self._pool is not None:
            self._pool.close()

    # A worker that gets SIGQUIT, or shuts down softly, calls this instead.
    terminate = stop


class Writer:
    """Looks for rules until it is stopped: each half minute, and when a rule is due or was set.

    Args:
        delayq: The ``DelayQ`` of its app.
        make_pool: Makes the pool in which runs are written, when the first rule is due; ``None``:
            this thread writes them.
    """

    def __init__(self, delayq: HasServices, make_pool: Callable[[], Pool] | None = None) -> None:
        self._services = delayq.services
        self._make_pool = make_pool
        self._pool: Pool | None = None
        self._stopping, self._awake = threading.Event(), threading.Event()
        self._thread = OwnThread("delayq-rules", self._run, self._stopping)
        self._declared: Declared | None = None
        self._name_at = -math.inf
        self._claims: Claims = []  # of rules whose runs are being written
        self._skipped: dict[tuple[int, bytes], float] = {}  # shard, rule -> until when
        self._gave_way = set[int]()  # shards
        self._has_rules = self._warned = False

    def start(self) -> None:
        self._services.hooks.add(Hooks(rules_changed=self._awake.set))
        if self._make_pool is None:
            said_of(self._services).is_over = True
        self._thread.start()

    def ready(self) -> None:
        """Say that the worker is ready: what it says from now on is not declared."""
        said_of(self._services).is_over = True
        self._name_at = -math.inf
        self._awake.set()

    def stop(self) -> None:
        self._stopping.set()
        self._awake.set()
        self._thread.join(REST / 3)
        if self._declared is not None:
            with suppress(StoreError):
                self._declared.end()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._awake.wait(self.look() * random.uniform(1, SPREAD))
            self._awake.clear()

    def look(self) -> float:
        """Look at the rules of each shard; return after how many seconds to look again."""
        if self._has_rules or self._services.settings.beat or said_of(self._services).rows:
            self._name()  # before it looks, or those that are new would wait
        rest = self._pool.rest() if self._pool is not None else 0.0
        if not rest:
            rest = self.write()
        return max(0.0, rest)

    def write(self) -> float:
        """Write the runs of each shard's rules, or let the pool do so; return the same."""
        rest = self._claim()
        while self._claims and self._make_pool is None:
            from . import writing

            writing.write_claimed(self._services, self._claims)
            rest = self._claim()
        if self._claims and self._pool is not None:
            self._pool.write(self._claims)
            return self._pool.rest()
        return rest

    def _claim(self) -> float:
        """Claim rules of each shard in place of those claimed before; return the same."""
        over = {number: claim for number, claim, _ in self._claims}
        self._claims, rests, now = [], [math.inf], clock.monotonic()
        self._skipped = {rule: until for rule, until in self._skipped.items() if until > now}
        for shard in self._services.entries.unasked_shards:
            try:
                rests.append(self._claim_on(shard, over.get(shard.number, "")))
            except StoreError as error:
                logger.warning("rules are not looked at: %s", error)
        self._has_rules = bool(self._skipped) or min(rests) < math.inf
        return min(REST, *rests, *(until - now for until in self._skipped.values()))

    def _claim_on(self, shard: Shard, over: str) -> float:
        """Claim rules of a shard; return the same, or infinity without rules.

        Rules that still have the claim *over* are left to other writers: they may have other code.
        """
        skipped = [name for number, name in self._skipped if number == shard.number]
        found = store.ahead(shard, over, skipped[-MOST_SKIPPED:])
        skipped += found.left
        until = clock.monotonic() + min(LONGEST, SKIPPED * max(1, found.writers))
        self._skipped |= {(shard.number, name): until for name in found.left}
        if not found.names:
            self._gave_way.discard(shard.number)
            return found.rest
        if self._make_pool is not None and self._pool is None:
            self._pool = self._make_pool()
        if self._pool is not None and (rest := self._pool.rest()):
            return rest
        if self._pool is not None and self._pool.is_busy and shard.number not in self._gave_way:
            self._gave_way.add(shard.number)
            return GIVEN_WAY
        if len(skipped) >= MOST_SKIPPED or not self._has_cronsim():
            return REST
        self._gave_way.discard(shard.number)
        found = store.claim(shard, skipped=skipped)
        skipped = [name for name in skipped if name not in found.names]  # of these, it was changed
        self._claims += [(shard.number, found.claim, skipped)] if found.claim else []
        return found.rest

    def _name(self) -> None:
        """Name what this process declares."""
        if clock.monotonic() < self._name_at or not self._has_cronsim():
            return
        try:
            if self._declared is None:
                from .declared import Declared

                runs_tasks = self._make_pool is not None
                self._declared = Declared(self._services, runs_tasks=runs_tasks)
            name_at = clock.monotonic() + NAMING
            self._declared.name()
            self._name_at = name_at
        except StoreError as error:
            logger.warning("the rules that this process declares are not set: %s", error)

    def _has_cronsim(self) -> bool:
        try:
            from . import plan  # noqa: F401
        except ModuleNotFoundError as error:
            if error.name != "cronsim":
                raise
            if not self._warned:
                logger.error(_NO_CRONSIM)
            self._warned = True
        return not self._warned


def watch(app: Celery, scheduler: Any) -> None:
    """Put a guard into the scheduler of a beat process, if the app has a store."""
    services = find(app)
    if services is not None and services.has_store:
        Guard(services).watch(scheduler)


class Guard:
    """Keeps a beat process from sending the entries that are rules."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._known: set[str] = set()  # the rules, for as long as the store is away
        self._offsets: dict[str, timedelta] = {}  # from a rule's slots to its runs
        self._ask_at = -math.inf

    def watch(self, scheduler: Any) -> None:
        """Let a scheduler, of whatever class, ask before it sends an entry."""
        send = scheduler.apply_async

        def apply_async(entry: Any, *given: Any, advance: bool = True, **options: Any) -> Any:
            if not self.is_rule(entry):
                return send(entry, *given, advance=advance, **options)
            logger.info("%s is a rule of the store: beat does not send it", entry.name)
            if advance:
                scheduler.reserve(entry)
            self._follow(scheduler, entry)
            return None

        scheduler.apply_async = apply_async

    def _follow(self, scheduler: Any, entry: Any) -> None:
        """Let beat ask at the slots of an interval's rule, and so send the ones after the last.

        An interval of beat counts from the last run. A removed rule would else leave a gap of up to
        two intervals.
        """
        ours: Any = getattr(scheduler, "schedule", {}).get(entry.name)
        offset = self._offsets.get(entry.name)
        if type(ours) is not ScheduleEntry or type(ours.schedule) is not schedule or offset is None:
            return
        late = (ours.last_run_at - EPOCH - offset) % ours.schedule.run_every
        ours.last_run_at -= late
        if late > NEAR:
            scheduler._heap = None  # beat computes anew when its entries are due

    def is_rule(self, entry: Any) -> bool:
        """Whether an entry that is due now is a rule, and this slot is the rule's."""
        slot = clock.utc_now()
        if isinstance(entry.schedule, crontab):
            slot = slot.replace(second=0, microsecond=0)
        if clock.monotonic() < self._ask_at:
            return entry.name in self._known
        try:
            found = store.find(self._services.entries, entry.name)
        except StoreError:
            self._ask_at = clock.monotonic() + AWAY
            return entry.name in self._known
        except (AttributeError, UnicodeError):  # beat takes any name
            return False
        is_one = (
            found is not None
            and not found.is_removed
            and not found.is_beats
            and found.since_ms <= store.ms_of(slot)
        )
        (self._known.add if is_one else self._known.discard)(entry.name)
        if is_one and found is not None:
            self._offsets[entry.name] = found.offset
        return is_one
