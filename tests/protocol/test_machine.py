"""Hypothesis drives the scripts, on a real Redis, and a model of them, through the same steps.

The simulator has late and repeated requests, and processes that die. Here the whole store is
compared: attempts, refusals and waits of each entry, the order in each list, and what a repair
leaves alone.
"""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from celery_delayq.contrib.care.check import COUNTED, repair_store
from celery_delayq.core.clock import When
from celery_delayq.core.store import Listing, State
from celery_delayq.core.store.changes import Removal, Rewrite
from celery_delayq.core.store.record import NewRecord
from celery_delayq.errors import AlreadyScheduled
from tests.protocol.machine import (
    DEAD,
    LEASE_MS,
    LEASED,
    MAX_REFUSALS,
    WAITING,
    Shelf,
)
from tests.store.made_up import made_up
from tests.store.support import NOW_MS, Store

BATCH = 3
STATES = {WAITING: State.SCHEDULED, LEASED: State.IN_FLIGHT, DEAD: State.DEAD}

IDS = "abc"
ids = st.sampled_from(IDS)
queues = st.sampled_from(["celery", "mail"])
# Past, the very instant, near, and far; on a grid, so that equal times are common. The times due
# at once come first and twice: without them little happens.
bands = st.sampled_from([0, -1, 0, -10_000, 1, 1000, LEASE_MS, 10_000_000])


class Machine(RuleBasedStateMachine):
    store: Store

    batches = Bundle("batches")
    entries = Bundle("entries")

    @initialize()
    def empty(self):
        self.store.raw.flushdb()
        self.store.set_ms(NOW_MS)
        self.model = Shelf(NOW_MS)
        self.steps_by_shard = self.store.scanners[:2]

    # Calls, and their immediate answers.

    @rule(
        task_id=ids,
        kind=st.sampled_from(["relay", "list", "relay"]),
        queue=queues,
        delta=bands,
        relative=st.booleans(),
        shares=st.booleans(),
        supersede=st.booleans(),
    )
    def schedule(self, *, task_id, kind, queue, delta, relative, shares, supersede):
        relative = relative and delta >= 0
        when = When("after", delta) if relative else When("at", self.model.now_ms + delta)
        supersede = supersede and task_id in self.model.tasks
        expected = self.model.schedule(
            task_id=task_id,
            kind=kind,
            queue=queue,
            due_ms=self.model.now_ms + delta,
            shares=shares,
            supersede=supersede,
        )
        options = {"when": when, "share": shares, "supersede": supersede}
        if kind == "list":
            put, options["to"] = self.store.schedule, queue
        else:
            put = self.store.schedule_relayed
        if expected is None:
            with pytest.raises(AlreadyScheduled):
                put(task_id, **options)
        else:
            assert put(task_id, **options) == expected

    @precondition(lambda self: self.model.tasks)
    @rule(task_id=ids)
    def cancel(self, task_id):
        outcome, change = self.store.entries.change(task_id, Removal())
        held = task_id in self.model.tasks
        assert outcome is self.model.cancel(task_id)
        assert (change.cancelled is not None) == (held and task_id not in self.model.tasks)

    @precondition(lambda self: self.model.tasks)
    @rule(task_id=ids, mode=st.sampled_from(["at", "after", "by"]), delta=bands)
    def reschedule(self, task_id, mode, delta):
        if mode == "after":
            delta = abs(delta)
        ms = self.model.now_ms + delta if mode == "at" else delta
        expected = self.model.reschedule(task_id, mode, ms)
        assert self.store.reschedule(task_id, When(mode, ms)) == expected

    @precondition(lambda self: self.model.tasks)
    @rule(target=entries, task_id=ids)
    def read(self, task_id):
        task = self.model.tasks.get(task_id)
        return task_id, self.store.entries.find(task_id), task and (task.number, task.changed_us)

    @rule(read=entries, queue=queues, shares=st.booleans(), large=st.booleans())
    def edit(self, *, read, queue, shares, large):
        """As it was read now, or long ago."""
        task_id, entry, seen = read
        expected = self.model.edit(task_id, seen, queue, shares)
        if entry is None:
            nothing = NewRecord(b"", b"", b"")
            assert self.store.entries.change(task_id, Rewrite(None, nothing))[0] is expected
        else:
            options = {"to": queue, "share": shares, "entry": entry}
            assert self.store.edit(task_id, "x" * 5000 * large, **options) is expected

    # Scanners.

    @precondition(lambda self: self.model.ready("list", 1))
    @rule(who=st.integers(0, 1))
    def move(self, who):
        self._move(who)

    def _move(self, who):
        seen = self.steps_by_shard[who].hand_over()
        assert (seen.handed_over, {task_id for task_id, _ in seen.dead}) == self.model.move(BATCH)

    @rule(queue=queues)
    def a_list_refuses(self, queue):
        """A key of another type is in its place; its entries are put aside."""
        if queue not in self.model.refusing:
            if self.store.raw.exists(queue):
                self.store.raw.rename(queue, f"{queue} before")
            self.store.raw.set(queue, "somebody's")
            self.model.refusing.add(queue)

    @precondition(lambda self: self.model.refusing)
    @rule(queue=queues)
    def a_list_takes_again(self, queue):
        if queue in self.model.refusing:
            self.store.raw.delete(queue)
            if self.store.raw.exists(f"{queue} before"):
                self.store.raw.rename(f"{queue} before", queue)
            self.model.refusing.remove(queue)

    @precondition(lambda self: self.model.ready("relay", 1))
    @rule(target=batches, who=st.integers(0, 1), limit=st.integers(1, BATCH))
    def claim(self, who, limit):
        # A scanner begins each round with this step, which puts refused ones back in their index.
        self._move(who)
        claimed, aside, *_ = self.steps_by_shard[who].claim(limit)
        holder = object()
        expected = self.model.claim(limit, holder)
        counts = [(each.attempts, each.refusals, bool(each.uncertain)) for each in claimed]
        assert list(zip([each.task_id for each in claimed], counts, strict=True)) == expected
        assert aside == []
        return self.steps_by_shard[who], claimed, holder

    @rule(batch=batches)
    def ack(self, batch):
        shard_steps, claimed, holder = batch
        expected = self.model.ack(holder, [each.task_id for each in claimed])
        assert shard_steps.ack(claimed) == expected

    @rule(
        batch=batches,
        verdict=st.sampled_from(["unsent", "unknown", "refused", "denied", "dead"]),
        uncertain=st.sampled_from([False, False, True]),
    )
    def release(self, batch, verdict, uncertain):
        shard_steps, claimed, holder = batch
        task_ids = [each.task_id for each in claimed]
        expected = self.model.nack(holder, task_ids, verdict, 1000, uncertain)
        options = {"wait": 1, "reason": "NO_ROUTE", "uncertain": uncertain}
        assert shard_steps.nack(verdict, claimed, **options) == expected

    @precondition(lambda self: self.model.count(LEASED))
    @rule(who=st.integers(0, 1))
    def reclaim(self, who):
        expected, reclaimed = self.model.reclaim(), []
        while some := self.steps_by_shard[who].reclaim():
            reclaimed += some
        assert sorted(reclaimed) == sorted(expected)

    @rule(ms=st.sampled_from([LEASE_MS, 1, 1000, LEASE_MS - 1, 10_000_000]))
    def time_passes(self, ms):
        self._set_clock(ms)

    @precondition(lambda self: self.model.count(LEASED))
    @rule(ms=st.sampled_from([-1, -1000, -3_600_000]))
    def the_clock_is_set_back(self, ms):
        self._set_clock(ms)

    def _set_clock(self, ms):
        self.model.now_ms += ms
        self.store.set_ms(self.model.now_ms)

    @rule()
    def repair(self):
        """Repair any findings, even old or made-up ones: consistent entries stay untouched."""
        found = list(made_up(self.store, without=(COUNTED,)))
        before = self.store.snapshot()
        for some in repair_store(self.store.entries, found):
            assert {one.what for one in some} <= {"gone"}
        assert self.store.snapshot() == before

    # Invariants after each step.

    @invariant()
    def each_id_has_one_place_and_each_template_its_count(self):
        self.store.check()
        self.store.check_types()

    @invariant()
    def every_task_is_where_the_model_says(self):
        for task_id in IDS:
            task, entry = self.model.tasks.get(task_id), self.store.entries.find(task_id)
            if task is None:
                assert entry is None
                continue
            assert (entry.state, entry.due_ms) == (STATES[task.place], task.due_ms)
            # For a list, Redis gives the reason, in words that differ between versions.
            reason = (
                "refused by its list" if "wrong kind" in entry.facts.error else entry.facts.error
            )
            assert task.place != DEAD or reason == task.reason

    @invariant()
    def the_queues_hold_what_was_handed_over_in_order(self):
        for queue in ("celery", "mail"):
            where = f"{queue} before" if queue in self.model.refusing else queue
            assert self.store.arrived(where) == self.model.queues.get(queue, [])

    @invariant()
    def lists_and_counts_agree(self):
        waiting = [
            (each.task_id, each.due_ms) for each in self.store.entries.waiting(Listing(0, 2**53))
        ]
        held = {
            (task_id, task.due_ms)
            for task_id, task in self.model.tasks.items()
            if task.place == WAITING
        }
        assert len(waiting) == len(held)
        assert set(waiting) == held
        counts = self.store.entries.counts()
        expected = [self.model.count(place) for place in (WAITING, LEASED, DEAD)]
        assert [counts.scheduled, counts.in_flight, counts.dead] == expected

    @invariant()
    def claims_are_kept_only_of_what_was_tried(self):
        tried = {
            task_id
            for task_id, task in self.model.tasks.items()
            if task.place == LEASED or task.attempts or task.uncertain
        }
        kept = {task_id.decode() for task_id in self.store.raw.hkeys(self.store.keys["claims"])}
        assert kept == tried


def run(machine):
    profile = settings(
        settings.get_profile(settings.get_current_profile_name()),
        max_examples=1000,
        stateful_step_count=40,
        # No shrinking: over a real Redis it takes minutes, and the steps are few enough to read.
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=profile)


@pytest.mark.thorough
@pytest.mark.timeout(1800)  # forty thousand steps; a few thousand find next to nothing
def test_the_scripts_and_the_model_never_differ(redis_server, redis_url, store_on, limits):
    store = store_on(redis_server)
    limits(hand_over_refusals=MAX_REFUSALS)
    for _ in range(2):
        store.steps(batch_size=BATCH, lease=LEASE_MS / 1000)
    run(type("Driven", (Machine,), {"store": store}))
