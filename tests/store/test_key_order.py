"""Changes under a key take effect in order, whichever entry has the key, in whichever place."""

from functools import partial
from types import SimpleNamespace

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store.record import Extras
from tests.store.held_and_behind import behind_one_that_waits, go_behind
from tests.store.requests import Request, cancel, now_us, reschedule, schedule
from tests.store.support import FAR_MS, NOW_MS, Store

pytestmark = pytest.mark.core

KEY = b"k"


def scheduled(
    store: Store, *ids: str, conflict="replace", key="k", to=None, revokes="none", ms=NOW_MS
) -> Request:
    """Schedule one entry per id; *to* is a list, or ``None`` for a relay."""
    options = {"to": to, "conflict": conflict, "revokes": revokes, "extras": Extras(key)}
    return schedule(store, *ids, when=When("at", ms), **options)


def cancelled(store: Store, target: bytes) -> Request:
    return cancel(store, target)


def moved(store: Store, target: bytes, ms=NOW_MS) -> Request:
    return reschedule(store, target, "at", ms)


def later(store: Store) -> None:
    """Let a moment pass."""
    store.set_us(now_us(store) + 1000)


def first(store: Store, task_id="first", **how) -> None:
    """Schedule an entry with the key, just now."""
    assert scheduled(store, task_id, **how).answer() == b"%d" % how.get("ms", NOW_MS)
    later(store)


def late(store: Store) -> Request:
    """A replacement that is made now, and still on its way."""
    made = scheduled(store, "late")
    later(store)
    return made


def holder(store: Store) -> bytes | None:
    return store.raw.hget(store.keys["holders"], KEY)


def is_refused(made: Request) -> bool:
    """Whether it wrote nothing, so that its caller, if still there, has to repeat the call."""
    reply = made.send()
    return reply == [b"stale"] or reply[1].startswith(b"again")


# Fences.


@pytest.mark.parametrize(
    "newer",
    [
        lambda store: cancelled(store, b"kk"),
        lambda store: cancelled(store, b"ifirst"),
        lambda store: moved(store, b"kk"),
        lambda store: moved(store, b"ifirst"),
        lambda store: scheduled(store, "newer"),
        lambda store: scheduled(store, "newer", conflict="keep"),
    ],
    ids=["cancel by key", "cancel by id", "move by key", "move by id", "replace", "keep"],
)
@pytest.mark.parametrize("leaves", [False, True])
def test_a_replacement_that_is_late_changes_nothing(store, shard_steps, newer, leaves):
    first(store, to="celery")
    before = late(store)
    newer(store).answer()
    if leaves:
        shard_steps.hand_over()
        shard_steps.ack(shard_steps.claim(5)[0])
    after = store.snapshot()
    assert is_refused(before)
    assert store.snapshot() == after


@pytest.mark.parametrize("newer", [cancelled, moved])
def test_a_late_replacement_writes_nothing_after_a_call_by_key_that_found_nothing(store, newer):
    before = late(store)
    assert newer(store, b"kk").answer() == b"not_found"
    assert is_refused(before)
    assert store.record("late") is None


def test_a_late_replacement_writes_nothing_after_a_newer_task_whose_id_got_another_key(store):
    before = late(store)
    first(store)
    first(store, key="l")
    assert is_refused(before)
    assert store.record("late") is None


@pytest.mark.parametrize("is_old", [False, True], ids=["", "in the older generation"])
def test_a_hand_over_does_not_lower_the_fence_that_a_kept_task_set(store, shard_steps, is_old):
    first(store, to="celery")
    before = late(store)
    assert scheduled(store, "kept", conflict="keep").answer().startswith(b"kept:")
    if is_old:
        # Like a call that begins a generation.
        store.raw.hset(store.keys["meta"], "turned", now_us(store) // 1000)
        store.raw.rename(store.keys["calls"], store.keys["calls_old"])
    shard_steps.hand_over()
    assert store.arrived() == ["first"]
    assert store.raw.hexists(store.keys["calls"], b"\xff" + KEY)
    assert is_refused(before)


def test_a_fence_of_a_time_before_the_clock_was_set_back_gives_way(store, shard_steps):
    cancelled(store, b"kk").answer()
    store.set_ms(NOW_MS - 3_600_000)
    before = scheduled(store, "late", ms=NOW_MS - 3_600_000)
    later(store)
    first(store, to="celery", ms=NOW_MS - 3_600_000)
    shard_steps.hand_over()
    assert store.arrived() == ["first"]
    assert is_refused(before)


@pytest.mark.parametrize("sets_aside", [False, True])
def test_a_leased_or_dead_entry_refuses_older_requests_and_does_not_hold_the_key(store, sets_aside):
    before = late(store)
    first(store)
    store.take("dead" if sets_aside else "leased", "first")
    assert is_refused(before)
    assert scheduled(store, "newer", conflict="").answer() == b"%d" % NOW_MS
    assert holder(store) == b"newer"


@pytest.mark.parametrize("change", [cancelled, partial(moved, ms=FAR_MS)], ids=["cancel", "move"])
def test_a_late_change_by_key_spares_what_came_back(store, change):
    first(store)
    before = change(store, b"kk")
    later(store)
    claims = store.take("leased", "first")
    scheduled(store, "newer", ms=FAR_MS).answer()
    later(store)
    assert cancelled(store, b"kk").answer() == b"done:inewer"
    store.steps().nack("unsent", claims)
    assert holder(store) == b"first"
    assert before.send() == [b"stale"]
    assert store.score("relay", "first") == NOW_MS


def test_entries_of_one_call_are_not_newer_than_each_other(store):
    made = scheduled(store, "one", "two", "three", to="celery")
    later(store)
    assert made.answer() == b"%d %d:one %d:two" % (NOW_MS, NOW_MS, NOW_MS)
    made = scheduled(store, "four", "five", conflict="keep")
    later(store)
    assert made.answer() == b"kept:%d:three kept:%d:three" % (NOW_MS, NOW_MS)


@pytest.mark.parametrize("key", ["", "k"])
def test_a_late_replacement_under_the_same_id_changes_nothing(store, key):
    first(store, key=key)
    before = scheduled(store, "first", key=key)
    later(store)
    assert moved(store, b"ifirst", FAR_MS).answer() == b"done:d%d" % FAR_MS
    assert is_refused(before)
    assert store.score("relay", "first") == FAR_MS


# Revoked entries.


def owed(store) -> set[bytes]:
    return set(store.raw.hkeys(store.keys["outbox_messages"]))


def test_an_entry_that_the_same_call_schedules_again_is_not_revoked(store):
    first(store)
    made = scheduled(store, "second", "first", revokes="replaced")
    assert made.answer() == b"%d:first %d:second" % (NOW_MS, NOW_MS)
    assert owed(store) == {b"second"}
    assert store.places("first") == ["relay"]


@pytest.mark.parametrize("is_leased", [False, True])
@pytest.mark.parametrize("other_holds", [False, True])
def test_an_id_that_gives_way_is_not_revoked_while_an_entry_has_it(store, is_leased, other_holds):
    first(store, key="" if other_holds else "k")
    if is_leased:
        store.take("leased", "first")
    if other_holds:
        scheduled(store, "other").answer()
        later(store)
    assert scheduled(store, "first", conflict="keep", revokes="all").answer().startswith(b"kept:")
    assert owed(store) == set()


@pytest.mark.parametrize("comes", [True, False])
def test_the_holder_is_not_replaced_by_an_older_call_than_what_went_behind_it(store, comes):
    ready = SimpleNamespace(store=store, steps=store.steps())
    behind_one_that_waits(ready)
    later(store)
    made = scheduled(store, "held", key="held key")
    later(store)
    if comes:
        go_behind("third")(ready)
        assert store.places("third") == ["behind"]

    assert is_refused(made) == comes
