"""Changes under a key take effect in order, whichever entry has the key, in whichever place.

The search in ``tests/protocol/test_keys.py`` shows each of these accidents.
"""

from types import SimpleNamespace

import pytest

from celery_delayq.core.clock import MAX_DUE_MS, When
from celery_delayq.core.store import NewEntry
from celery_delayq.core.store.extras import Extras
from celery_delayq.core.store.record import destination_for
from celery_delayq.core.store.schedule import MAX_BYTES, _arguments
from tests.store.held_and_behind import behind_one_that_waits, go_behind
from tests.store.requests import Request, cancel, now_us, request, reschedule
from tests.store.support import FAR_MS, NOW_MS, ROUTE, Store, new_record

pytestmark = pytest.mark.core

KEY = b"k"


@pytest.fixture
def shard_steps(store):
    return store.steps(lease=60)


def scheduled(
    store: Store, *ids: str, conflict="replace", key="k", to=None, revokes="none", ms=NOW_MS
) -> Request:
    """Schedule one entry per id; *to* is a list, or ``None`` for a relay."""
    destination = destination_for("R", ROUTE) if to is None else destination_for("L", to)
    new = [
        NewEntry(
            one,
            When("at", ms),
            new_record(one, destination).with_extras(Extras(key)),
            conflict,
        )
        for one in ids
    ]
    return request(
        store,
        "schedule",
        latest=MAX_DUE_MS,
        supersede=0,
        revokes=revokes,
        tells=1,
        max_bytes=MAX_BYTES,
        keep_ms=0,
        most_marks=0,
        entries=_arguments(new, (), int),
    )


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
def test_so_does_one_where_a_call_by_key_found_nothing(store, newer):
    before = late(store)
    assert newer(store, b"kk").answer() == b"not_found"
    assert is_refused(before)
    assert store.record("late") is None


def test_nor_does_one_where_a_newer_task_gave_its_id_to_one_with_another_key(store):
    before = late(store)
    first(store)
    first(store, key="l")
    assert is_refused(before)
    assert store.record("late") is None


def test_a_hand_over_does_not_lower_the_fence_that_a_kept_task_set(store, shard_steps):
    first(store, to="celery")
    before = late(store)
    assert scheduled(store, "kept", conflict="keep").answer().startswith(b"kept:")
    shard_steps.hand_over()
    assert store.arrived() == ["first"]
    assert is_refused(before)


def test_nor_where_that_is_in_the_older_generation(store, shard_steps):
    first(store, to="celery")
    before = late(store)
    scheduled(store, "kept", conflict="keep").answer()
    # Like a call that begins a generation.
    store.raw.hset(store.keys["meta"], "turned", now_us(store) // 1000)
    store.raw.rename(store.keys["calls"], store.keys["calls_old"])
    shard_steps.hand_over()
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
def test_a_leased_or_dead_entry_refuses_older_requests_and_does_not_hold_the_key(
    store, shard_steps, sets_aside
):
    before = late(store)
    first(store)
    claimed = shard_steps.claim(5)[0]
    if sets_aside:
        shard_steps.nack("dead", claimed, reason="NO_ROUTE")
    assert is_refused(before)
    assert scheduled(store, "newer", conflict="").answer() == b"%d" % NOW_MS
    assert holder(store) == b"newer"


def test_a_late_cancel_by_key_spares_what_came_back(store, shard_steps):
    first(store)
    before = cancelled(store, b"kk")
    later(store)
    claimed = shard_steps.claim(5)[0]
    scheduled(store, "newer", ms=FAR_MS).answer()
    later(store)
    assert cancelled(store, b"kk").answer() == b"done:newer"
    shard_steps.nack("unsent", claimed)
    assert holder(store) == b"first"
    assert before.send() == [b"stale"]
    assert store.places("first") == ["relay"]


def test_a_late_move_by_key_does_as_well(store, shard_steps):
    first(store)
    before = moved(store, b"kk", FAR_MS)
    later(store)
    claimed = shard_steps.claim(5)[0]
    scheduled(store, "newer", ms=FAR_MS).answer()
    later(store)
    cancelled(store, b"kk").answer()
    shard_steps.nack("unsent", claimed)
    assert before.send() == [b"stale"]


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
    assert moved(store, b"ifirst", FAR_MS).answer() == b"done:%d" % FAR_MS
    assert is_refused(before)
    assert store.score("relay", "first") == FAR_MS


# Coming back.


@pytest.mark.parametrize("how", ["unsent", "unknown", "refused", "reclaim"])
@pytest.mark.parametrize("where", ["leased", "dead", "gone"])
def test_an_entry_that_comes_back_takes_the_key_from_one_that_does_not_wait(
    store, shard_steps, how, where
):
    first(store)
    claimed = shard_steps.claim(5)[0]
    store.lease_out()
    scheduled(store, "newer").answer()
    newer = shard_steps.claim(5)[0]
    if where == "dead":
        shard_steps.nack("dead", newer, reason="NO_ROUTE")
    elif where == "gone":
        store.raw.hdel(store.keys["records"], "newer")
    if how == "reclaim":
        assert shard_steps.reclaim() == ["first"]
    else:
        shard_steps.nack(how, claimed, wait=1)
    assert holder(store) == b"first"
    assert scheduled(store, "third", conflict="").answer() == b"scheduled:first"


@pytest.mark.parametrize("how", ["unsent", "unknown", "refused", "reclaim"])
def test_it_leaves_the_key_to_what_waits(store, shard_steps, how):
    first(store)
    claimed = shard_steps.claim(5)[0]
    store.lease_out()
    scheduled(store, "newer", to="celery", ms=FAR_MS).answer()
    if how == "reclaim":
        shard_steps.reclaim()
    else:
        shard_steps.nack(how, claimed, wait=1)
    assert holder(store) == b"newer"


@pytest.mark.parametrize("newer_waits", [False, True])
def test_a_dead_letter_that_is_tried_again_has_its_key_if_nothing_waits_under_it(
    store, shard_steps, newer_waits
):
    first(store)
    shard_steps.nack("dead", shard_steps.claim(5)[0], reason="NO_ROUTE")
    scheduled(store, "newer").answer()
    if not newer_waits:
        shard_steps.claim(5)
    later(store)
    assert moved(store, b"ifirst").answer() == b"done:%d" % NOW_MS
    assert holder(store) == (b"newer" if newer_waits else b"first")


# Revoked entries.


def owed(store) -> set[bytes]:
    return set(store.raw.hkeys(store.keys["outbox_messages"]))


def test_an_entry_that_the_same_call_schedules_again_is_not_revoked(store):
    first(store)
    made = scheduled(store, "second", "first", revokes="replaced")
    assert made.answer() == b"%d:first %d:second" % (NOW_MS, NOW_MS)
    assert owed(store) == {b"second"}
    assert store.places("first") == ["relay"]


def test_an_id_that_gives_way_is_revoked(store):
    first(store)
    assert (
        scheduled(store, "second", conflict="keep", revokes="all").answer()
        == b"kept:%d:first" % NOW_MS
    )
    assert owed(store) == {b"second"}


@pytest.mark.parametrize("is_leased", [False, True])
@pytest.mark.parametrize("other_holds", [False, True])
def test_it_is_not_where_an_entry_of_that_id_is_there(store, shard_steps, is_leased, other_holds):
    first(store, key="" if other_holds else "k")
    if is_leased:
        shard_steps.claim(5)
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
