"""The names of live scanners; and whether a reader knows the store's layout."""

import pytest

from celery_delayq.core.store import Entries
from celery_delayq.core.store.counts import LiveScanner
from celery_delayq.errors import StoreDiffers, StoreError
from tests.store.support import NOW_MS

pytestmark = pytest.mark.core

HOUR_MS = 3_600_000


def alive(store):
    """Each scanner's name, and the age of its last heartbeat, in ms."""
    now_ms = store.entries.counts().now_ms
    told = {one.name: now_ms - one.seen_ms for one in store.entries.scanners()}
    assert len(told) == store.entries.counts().scanners
    return told


@pytest.mark.parametrize("seconds", [15, 900])
def test_each_is_named_with_its_last_heartbeat_for_however_long_that_counts(store, seconds):
    first, second = store.steps(alive=seconds), store.steps(alive=15)
    first.hand_over()
    store.set_ms(NOW_MS + 4000)
    second.hand_over()
    store.set_ms(NOW_MS + 5000)
    assert alive(store) == {first.name: 5000, second.name: 1000}


@pytest.mark.parametrize(("asleep", "counts"), [(4, 15), (20, 60)])
def test_a_heartbeat_counts_for_three_of_its_scanners_sleeps_at_least(store, asleep, counts):
    shard_steps = store.steps(alive=15)
    shard_steps.hand_over(asleep=asleep)
    store.set_ms(NOW_MS + counts * 1000)
    assert alive(store) == {shard_steps.name: counts * 1000}
    store.set_ms(NOW_MS + counts * 1000 + 1)
    assert alive(store) == {}


def test_a_heartbeat_tells_how_many_scanners_are_alive(store):
    dead, first, second = (store.steps(alive=seconds) for seconds in (1, 15, 15))
    dead.hand_over()
    store.set_ms(NOW_MS + 2000)
    assert first.hand_over().scanners == 1
    assert second.hand_over().scanners == 2
    assert second.hand_over().scanners == 0  # its heartbeat still counts


def test_a_scanner_counts_entries_and_not_the_other_scanners(store):
    """A thousand that come back at once would read a thousand names each."""
    shard_steps = store.steps(alive=15)
    shard_steps.hand_over()
    store.raw.config_resetstat()
    assert shard_steps.counts().scanners == 0
    assert "cmdstat_hmget" not in store.raw.info("commandstats")
    assert store.entries.counts().scanners == 1


def test_a_later_heartbeat_takes_the_place_of_the_one_before(store, shard_steps):
    shard_steps.hand_over()
    store.set_ms(NOW_MS + 3000)
    shard_steps.go_on_as(shard_steps.name)
    shard_steps.hand_over()
    store.set_ms(NOW_MS + 3500)
    assert alive(store) == {shard_steps.name: 500}


def test_a_scanner_that_leaves_is_forgotten(store, shard_steps):
    shard_steps.hand_over()
    shard_steps.leave()
    assert alive(store) == {}
    assert not store.raw.exists(store.keys["scanners"], store.keys["heartbeats"])


def test_a_killed_scanner_is_forgotten_after_an_hour(store):
    store.steps(alive=15).hand_over()
    store.set_ms(NOW_MS + HOUR_MS + 15_000)
    living = store.steps(alive=15)
    living.hand_over()
    now_ms = NOW_MS + HOUR_MS + 15_000
    told = b"%d:1:%d" % (now_ms, now_ms)  # the time, the newest format, and when it joined
    assert store.raw.hgetall(store.keys["heartbeats"]) == {living.name.encode(): told}
    assert store.raw.zrange(store.keys["scanners"], 0, -1) == [living.name.encode()]


def test_many_that_were_killed_are_forgotten_in_several_heartbeats(store, shard_steps):
    killed = {f"killed{step}": NOW_MS - 2 * HOUR_MS for step in range(9500)}
    store.raw.zadd(store.keys["scanners"], killed)
    store.raw.hset(store.keys["heartbeats"], mapping=killed)
    for _ in range(10):
        shard_steps.go_on_as(shard_steps.name)
        shard_steps.hand_over()
    assert store.raw.zcard(store.keys["scanners"]) == store.raw.hlen(store.keys["heartbeats"]) == 1


def test_a_scanner_that_died_before_the_clock_was_set_back_does_not_seem_alive(store):
    dead, living = store.steps(alive=15), store.steps(alive=15)
    dead.hand_over()
    living.hand_over()
    store.set_ms(NOW_MS - HOUR_MS)
    assert alive(store) == {}
    living.go_on_as(living.name)  # it gives its next one within seconds of its own clock
    living.hand_over()
    assert alive(store) == {living.name: 0}


def test_a_clock_set_back_by_less_than_a_heartbeat_counts_makes_nobody_seem_dead(store):
    shard_steps = store.steps(alive=15)
    shard_steps.hand_over()
    store.set_ms(NOW_MS - 14_000)
    assert list(alive(store)) == [shard_steps.name]


@pytest.mark.parametrize("spoil", ["hdel", "no number"])
def test_where_somebody_spoilt_the_heartbeats_a_scanner_is_alive_all_the_same(
    store, shard_steps, spoil
):
    shard_steps.hand_over()
    if spoil == "hdel":
        store.raw.delete(store.keys["heartbeats"])
    else:
        store.raw.hset(store.keys["heartbeats"], shard_steps.name, "somebody's")
    assert alive(store) == {shard_steps.name: 0}


def test_heartbeats_of_somebody_else_s_keep_no_scanner_from_its_work(store, shard_steps):
    shard_steps.hand_over()
    store.schedule("a")
    store.raw.delete(store.keys["heartbeats"])
    store.raw.set(store.keys["heartbeats"], "somebody's")
    assert shard_steps.hand_over().handed_over == 1
    shard_steps.leave()
    assert store.raw.get(store.keys["heartbeats"]) == b"somebody's"


def test_of_a_thousand_and_more_a_thousand_are_told(store):
    until = NOW_MS + 15_000
    store.raw.zadd(store.keys["scanners"], {f"host:{step}:x": until for step in range(1200)})
    assert len(alive(store)) == 1000


@pytest.mark.parametrize(
    ("name", "host"),
    [("web1:4711:9f3a2c01", "web1"), ("fe80::1:4711:9f3a2c01", "fe80::1"), ("odd", "odd")],
)
def test_a_scanner_s_name_begins_with_its_host(name, host):
    assert LiveScanner(name, 0, "1").host == host


def test_a_reader_of_the_same_layout_may_look_before_and_after_others_and_leaves_nothing(store):
    store.entries.check_membership()
    assert store.contents(all_keys=True).keys() == {b"test:clock"}
    store.schedule("a")
    store.entries.check_membership()


@pytest.mark.parametrize(
    ("field", "name", "theirs"), [("schema", "layout", "2"), ("shards", "delayq_shards", "3")]
)
def test_a_reader_of_another_layout_is_told(store, field, name, theirs):
    store.schedule("a")
    store.raw.hset(store.keys["meta"], field, theirs)
    with pytest.raises(StoreDiffers, match=f"the store has {name} '{theirs}', this process '1'"):
        Entries([store.scripts], store.membership).check_membership()


def test_meta_of_somebody_else_s_is_an_error(store):
    store.raw.set(store.keys["meta"], "somebody's")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        store.entries.check_membership()
