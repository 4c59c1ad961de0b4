"""How an entry left is known for so many seconds, or until so many others have left."""

from contextlib import suppress

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Outcome
from celery_delayq.core.store.changes import Removal, changed
from celery_delayq.core.store.record import Extras
from celery_delayq.errors import StoreError
from tests.store import requests
from tests.store.support import FAR_MS, NOW_MS, TIMEOUT_MS
from tests.store.test_aborted import STOP, TRACE, StoppableStore

pytestmark = pytest.mark.core

KEPT = ("tombstones", "tombstones_old")
SECONDS, MOST = 60, 12


def remembering(store, seconds, most):
    store.set(remember=(seconds, most))
    return store


@pytest.fixture
def short(store):
    """A store that remembers for a minute."""
    return remembering(store, SECONDS, 10_000)


@pytest.fixture
def few(store):
    """A store that remembers a dozen entries."""
    return remembering(store, 3600, MOST)


def leave(store, *ids):
    for one in ids:
        store.schedule(one)
    store.steps().hand_over()


def pass_ms(store, ms):
    store.set_ms(requests.now_us(store) // 1000 + ms)


def kept(store):
    return [store.raw.hlen(store.keys[name]) for name in KEPT]


@pytest.mark.parametrize("started", range(0, 2 * SECONDS, 10))
def test_how_an_entry_left_is_known_for_as_long_as_set_whenever_it_left(short, started):
    leave(short, "first")
    pass_ms(short, started * 1000)
    leave(short, "a")
    for number in range(SECONDS - 1):
        pass_ms(short, 1000)
        leave(short, f"after{number}")

    assert short.entries.change("a", Removal())[0] is Outcome.HANDED_OVER
    assert short.reschedule("a", When("at", FAR_MS)) == (Outcome.HANDED_OVER, None)


@pytest.mark.parametrize("before", range(0, 2 * MOST, 3))
def test_how_an_entry_left_is_known_until_as_many_others_have_left_as_set(few, before):
    leave(few, *(f"before{number}" for number in range(before)))
    leave(few, "a")
    for number in range(MOST):
        assert few.entries.change("a", Removal())[0] is Outcome.HANDED_OVER
        leave(few, f"after{number}")


def test_how_an_entry_left_is_forgotten_when_twice_as_many_others_have_left(few):
    leave(few, "a")
    for number in range(2 * MOST):
        leave(few, f"after{number}")
        assert sum(kept(few)) <= 2 * MOST
    assert few.entries.change("a", Removal())[0] is Outcome.NOT_FOUND


def test_how_an_entry_left_is_forgotten_after_twice_as_long_though_nothing_else_leaves(short):
    leave(short, "a")
    for expected in ([0, 1], [0, 0]):
        pass_ms(short, SECONDS * 1000)
        short.steps().hand_over()  # with a heartbeat
        assert kept(short) == expected


def deliver(store, shard_steps):
    store.at("left", "b", by=shard_steps)


def publish(store, shard_steps):
    store.at("left", "b", relayed=True, by=shard_steps)


def skip(store, shard_steps):
    store.schedule_relayed("b", extras=Extras(grace_ms=1))
    pass_ms(store, 2)
    assert shard_steps.claim(1).skipped


def cancel(store, _):
    store.schedule("b", FAR_MS)
    pass_ms(store, TIMEOUT_MS + 1000)  # so that it begins a generation of calls
    store.entries.change("b", Removal())


def cancel_many(store, _):
    store.schedule("b", FAR_MS)
    store.schedule("c", FAR_MS)
    list(changed(store.shard, Removal(), ["b", "c"]))


each_way = pytest.mark.parametrize("way", [deliver, publish, skip, cancel, cancel_many])


@each_way
def test_however_an_entry_leaves_a_generation_ends_in_time(short, shard_steps, way):
    short.schedule("a")
    shard_steps.hand_over()
    pass_ms(short, SECONDS * 1000)
    way(short, shard_steps)
    assert short.raw.hkeys(short.keys["tombstones_old"])[0] == b"a"


@each_way
def test_however_an_entry_leaves_a_generation_ends_when_it_is_full(few, shard_steps, way):
    leave(few, *(f"a{number}" for number in range(MOST - 1)))
    assert kept(few) == [MOST - 1, 0]
    way(few, shard_steps)
    assert kept(few) == [0, MOST + (way is cancel_many)]


def test_after_the_clock_was_set_back_nothing_is_forgotten_early(short):
    leave(short, "a")
    pass_ms(short, SECONDS * 1000)
    leave(short, "b")
    short.set_ms(NOW_MS - 3_600_000)
    for _ in range(2):
        short.steps().hand_over()
        assert short.entries.change("a", Removal())[0] is Outcome.HANDED_OVER

    for _ in range(2):
        pass_ms(short, SECONDS * 1000)
        short.steps().hand_over()
    assert kept(short) == [0, 0]


@pytest.fixture
def stoppable(redis_server, redis_url):
    made = StoppableStore(redis_server)
    yield remembering(made, SECONDS, 10_000)
    made.close()


def trace(store, nth=0):
    """Send a heartbeat that stops before its *nth* write; returns its writes."""
    shard_steps = store.steps()
    store.raw.delete(TRACE)
    store.raw.hset(STOP, mapping={"nth": nth, "side": "before"})
    store.scripts.let_stop("hand_over")
    with suppress(StoreError):
        shard_steps.hand_over()
    return store.raw.lrange(TRACE, 0, -1)


@pytest.mark.parametrize("nth", range(1, 10))
def test_stopped_at_any_write_of_a_turn_nothing_is_forgotten_early(stoppable, nth):
    leave(stoppable, "a")
    pass_ms(stoppable, SECONDS * 1000 - 1)
    leave(stoppable, "b")
    pass_ms(stoppable, 1)
    writes = trace(stoppable, nth)
    for _ in range(2):
        trace(stoppable)
    assert stoppable.entries.change("b", Removal())[0] is Outcome.HANDED_OVER
    assert nth < 9 or writes[-1].endswith(b"RENAME")  # it was not stopped


@pytest.mark.parametrize("garbage", ["x", "", "nan"])
def test_a_time_that_is_none_is_mended_and_nothing_is_forgotten(short, garbage):
    leave(short, "a")
    pass_ms(short, SECONDS * 1000)
    leave(short, "b")
    short.raw.hset(short.keys["meta"], "remember_since", garbage)

    short.steps().hand_over()

    since = short.raw.hget(short.keys["meta"], "remember_since")
    assert int(since) == NOW_MS + SECONDS * 1000
    assert kept(short) == [0, 2]


@pytest.mark.parametrize("garbage", ["", "x", "60000", "60000 10 1", "nan 10"])
def test_without_a_setting_nothing_is_forgotten_until_a_process_joins(few, garbage):
    shard_steps = few.steps()
    for number in range(3 * MOST):
        few.schedule(f"a{number}")  # which may join
        few.raw.hset(few.keys["meta"], "remember", garbage)
        shard_steps.hand_over()
    assert kept(few) == [3 * MOST, 0]

    requests.join(few)
    few.schedule("b")
    shard_steps.hand_over()

    assert kept(few) == [0, 3 * MOST + 1]


def test_the_last_process_that_joins_decides(few):
    leave(few, "a")
    requests.join(few, remember=(90.5, 20))
    assert few.raw.hget(few.keys["meta"], "remember") == b"90500 20"


def test_each_shard_remembers_its_part_of_them(few):
    few.raw.hset(few.keys["meta"], "shards", 3)
    requests.join(few, shards=3, remember=(60, 10))
    assert few.raw.hget(few.keys["meta"], "remember") == b"60000 4"


def test_the_old_generation_is_not_freed_by_a_rename(few):
    """A RENAME frees the replaced key at once."""
    leave(few, *(f"before{number}" for number in range(MOST)))
    few.raw.config_resetstat()
    leave(few, *(f"after{number}" for number in range(MOST)))
    assert few.raw.info("commandstats")["cmdstat_unlink"]["calls"] == 1
