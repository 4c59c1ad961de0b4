"""Reading: one entry, pages of them in due order, and the counts."""

import itertools

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Entry, State, pages
from tests.store.support import FAR_MS, NOW_MS

pytestmark = pytest.mark.core

ALL = (0, 2**53)


def ids(entries) -> list[str]:
    return [entry.task_id for entry in entries]


def small_pages(monkeypatch, size=3):
    monkeypatch.setattr(pages, "PAGE", size)


def script_calls(store) -> int:
    return store.raw.info("commandstats")["cmdstat_evalsha"]["calls"]


def test_an_entry_that_is_not_scheduled_is_none(store):
    store.schedule("gone")
    store.steps().hand_over()
    assert store.entries.find("gone") is store.entries.find("never") is None
    assert store.entries.state("gone") is store.entries.state("never") is None


def test_the_time_of_a_hand_over_is_known_for_a_while(store):
    store.schedule("a")
    store.schedule("cancelled", FAR_MS)
    store.set_ms(NOW_MS + 5)
    assert store.entries.handed_over_ms("a") is None
    store.steps().hand_over()
    store.entries.cancel("cancelled")
    assert store.entries.handed_over_ms("a") == NOW_MS + 5
    assert store.entries.handed_over_ms("cancelled") is store.entries.handed_over_ms("b") is None


def test_every_state_is_told(store):
    store.schedule("scheduled", FAR_MS)
    for task_id in ("dead", "flying"):
        store.schedule_relayed(task_id)
    shard_steps = store.steps()
    (dead, _), *_ = shard_steps.claim(2)
    shard_steps.nack("dead", [dead], reason="NO_ROUTE")
    states = {task_id: store.entries.state(task_id) for task_id in ("scheduled", "dead", "flying")}
    assert states == {
        "scheduled": State.SCHEDULED,
        "dead": State.DEAD,
        "flying": State.IN_FLIGHT,
    }
    assert {task_id: store.entries.find(task_id).state for task_id in states} == states


@pytest.mark.parametrize("share", [False, True])
def test_reading_changes_nothing(store, share):
    store.schedule("a", FAR_MS, share=share)
    store.schedule_relayed("b", FAR_MS, share=share)
    before = store.snapshot()
    store.entries.find("a")
    store.entries.state("b")
    store.entries.counts()
    list(store.entries.waiting(*ALL))
    assert store.snapshot() == before


def test_a_listing_gives_what_finding_each_one_gives(store):
    for step in range(5):
        store.schedule(f"a{step}", FAR_MS + step, payload="x" * step, share=step % 2 == 0)
    listed = list(store.entries.waiting(*ALL))
    assert listed == [store.entries.find(f"a{step}") for step in range(5)]
    assert all(isinstance(entry, Entry) for entry in listed)


def test_a_listing_is_in_due_order_over_both_indexes_and_all_pages(store, monkeypatch):
    small_pages(monkeypatch)
    expected = []
    for step in range(20):
        due_ms = FAR_MS + (step * 7) % 10
        put = store.schedule if step % 3 else store.schedule_relayed
        put(f"a{step}", due_ms)
        expected.append((due_ms, step))
    assert ids(store.entries.waiting(*ALL)) == [f"a{step}" for _, step in sorted(expected)]


def test_equal_due_times_are_listed_in_insertion_order_over_all_pages(store, monkeypatch):
    small_pages(monkeypatch)
    store.raw.hset(store.keys["meta"], "seq", 250)
    expected = [f"a{99 - step}" for step in range(20)]
    for step, task_id in enumerate(expected):
        (store.schedule if step % 2 else store.schedule_relayed)(task_id, FAR_MS)
    assert ids(store.entries.waiting(*ALL)) == expected


def test_bounds_take_the_lower_and_leave_the_upper(store):
    for step in range(5):
        store.schedule(f"a{step}", FAR_MS + step)
    assert ids(store.entries.waiting(FAR_MS + 1, FAR_MS + 3)) == ["a1", "a2"]
    assert ids(store.entries.waiting(FAR_MS + 5, FAR_MS + 9)) == []
    assert ids(store.entries.waiting(FAR_MS + 3, FAR_MS + 1)) == []


def test_a_due_time_of_zero_is_listed_and_counted(store):
    store.schedule("a", 0)
    assert ids(store.entries.waiting(0, 1)) == ["a"]
    counts = store.entries.counts()
    assert (counts.next_due_ms, counts.oldest_overdue_ms) == (0, 0)


@pytest.mark.parametrize("equal", [True, False], ids=["equal times", "different times"])
def test_entries_that_come_and_go_make_a_listing_neither_skip_nor_repeat_another(
    store, monkeypatch, equal
):
    small_pages(monkeypatch)
    due = itertools.repeat(FAR_MS) if equal else itertools.count(FAR_MS, 10)
    stay = [f"stay{step}" for step in range(30)]
    for task_id, due_ms in zip(stay, due, strict=False):
        store.schedule(task_id, due_ms)
    go = [f"go{step}" for step in range(10)]
    for step, task_id in enumerate(go):
        store.schedule(task_id, FAR_MS if equal else FAR_MS + 30 * step + 5)
    seen = []
    for number, entry in enumerate(store.entries.waiting(*ALL)):
        seen.append(entry.task_id)
        if number < 10:
            store.entries.cancel(go[number])
            store.schedule(f"come{number}", FAR_MS if equal else FAR_MS + 20 * number + 3)
            store.reschedule(f"come{number}", When("by", -1))
    assert [task_id for task_id in seen if task_id in stay] == stay
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("span", [1, 1000, 10**9])
def test_a_listing_ends_though_each_task_of_it_is_rescheduled(store, monkeypatch, span):
    small_pages(monkeypatch)
    expected = [f"a{step}" for step in range(20)]
    for step, task_id in enumerate(expected):
        (store.schedule if step % 3 else store.schedule_relayed)(task_id, FAR_MS + step)
    listed = []
    for entry in itertools.islice(store.entries.waiting(*ALL), 100):
        listed.append(entry.task_id)
        store.reschedule(entry.task_id, When("by", span))
    assert sorted(listed, key=expected.index) == expected


@pytest.mark.parametrize("fraction", [0.25, 0.5, 0.75])
def test_a_listing_ends_where_somebody_wrote_a_fraction_of_a_millisecond(
    store, monkeypatch, fraction
):
    small_pages(monkeypatch)
    for step in range(10):
        store.schedule(f"a{step}", FAR_MS + step)
    for member, score in store.raw.zrange(store.keys["due"], 2, 6, withscores=True):
        store.raw.zadd(store.keys["due"], {member: score + fraction})
    listed = ids(itertools.islice(store.entries.waiting(*ALL), 100))
    assert listed == [f"a{step}" for step in range(10)]


def test_a_member_of_somebody_else_s_hides_no_entry(store, monkeypatch):
    small_pages(monkeypatch)
    for step in range(10):
        store.schedule(f"a{step}", FAR_MS)
    strangers = ["", "x", b"\0\0\0\0\0", b"\xff\xff\xff\xff\xff", b"\xff" * 6, "somebody else's"]
    store.raw.zadd(store.keys["due"], dict.fromkeys(strangers, FAR_MS))
    store.raw.zadd(store.keys["due"], {"before": "-inf", "behind": "+inf"})
    listed = ids(itertools.islice(store.entries.waiting(*ALL), 100))
    assert listed == [f"a{step}" for step in range(10)]


def test_a_page_ends_after_its_bound_in_bytes_and_the_next_goes_on(store, monkeypatch):
    monkeypatch.setattr(pages, "PAGE_BYTES", 5000)
    for step in range(20):
        store.schedule(f"a{step}", FAR_MS, payload="x" * 1000)
    page = store.scripts.call(
        "page",
        newest=0,
        after=-1,
        order=-1,
        first=0,
        before=2**53,
        filter="",
        limit=100,
        max_bytes=5000,
        most=9,
    )
    assert len(page.found) == 5
    assert ids(store.entries.waiting(*ALL)) == [f"a{step}" for step in range(20)]


def test_a_listing_reads_no_further_than_it_is_asked(store, monkeypatch):
    small_pages(monkeypatch)
    for step in range(20):
        store.schedule(f"a{step}", FAR_MS + step)
    first_page = ids(itertools.islice(store.entries.waiting(*ALL), 3))
    before = script_calls(store)
    assert ids(itertools.islice(store.entries.waiting(*ALL), 3)) == first_page
    assert first_page == ["a0", "a1", "a2"]
    assert script_calls(store) - before == 1  # a page


def test_a_refused_entry_is_listed_with_its_own_due_time(store):
    store.schedule_relayed("a", NOW_MS - 5)
    shard_steps = store.steps()
    claimed, *_ = shard_steps.claim(1)
    shard_steps.nack("refused", claimed, wait=60)
    (entry,) = store.entries.waiting(*ALL)
    assert entry.due_ms == NOW_MS - 5


def test_an_empty_store_counts_nothing(store):
    counts = store.entries.counts()
    assert (counts.scheduled, counts.in_flight, counts.dead, counts.scanners) == (0, 0, 0, 0)
    assert (counts.next_due_ms, counts.now_ms) == (None, NOW_MS)


def test_counts_by_state_are_exact(store):
    for step in range(3):
        store.schedule(f"list{step}", FAR_MS + step)
    for step in range(4):
        store.schedule_relayed(f"relay{step}", NOW_MS + step)
    shard_steps = store.steps()
    store.set_ms(NOW_MS + 2)
    claimed, *_ = shard_steps.claim(3)
    shard_steps.nack("dead", claimed[:1], reason="NO_ROUTE")
    counts = store.entries.counts()
    assert (counts.scheduled, counts.in_flight, counts.dead) == (4, 2, 1)
    assert counts.next_due_ms == NOW_MS + 3


def test_a_scanner_counts_as_alive_for_as_long_as_it_said(store):
    first, second = store.steps(alive=15), store.steps(alive=15)
    first.hand_over()
    store.set_ms(NOW_MS + 1000)
    second.hand_over()
    alive = []
    for ms in (1000, 15_000, 15_001, 16_000, 16_001):
        store.set_ms(NOW_MS + ms)
        alive.append(store.entries.counts().scanners)
    assert alive == [2, 2, 1, 1, 0]


def test_a_scanner_that_is_busy_stays_alive(store):
    shard_steps = store.steps(alive=15)
    for _ in range(3):
        shard_steps.hand_over()
    store.set_ms(NOW_MS + 14_000)
    assert store.entries.counts().scanners == 1


def test_a_scanner_silent_for_an_hour_is_forgotten(store):
    store.steps(alive=15).hand_over()
    store.set_ms(NOW_MS + 3_700_000)
    living = store.steps(alive=15)
    living.hand_over()
    assert store.raw.zrange(store.keys["scanners"], 0, -1) == [living.name.encode()]
