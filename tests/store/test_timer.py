"""One scanner wakes for the next entry; no other scanner relies on one that is gone."""

import pytest

from tests.store.support import FAR_MS, NOW_MS
from tests.store.test_telling import ALL, ASLEEP, both_kinds, listen, timer

pytestmark = pytest.mark.core

__all__ = ["listen"]


@pytest.fixture
def first(store):
    return store.steps()


@pytest.fixture
def second(store):
    return store.steps()


def is_up(shard_steps, **options) -> bool:
    """Whether a scanner that looks is the one that wakes for the next entry."""
    return shard_steps.hand_over(asleep=ASLEEP, **options).has_timer


def up_at(store) -> int:
    return timer(store)[0]


@both_kinds
def test_the_first_that_looks_is_up_for_the_head_and_the_others_are_not(store, first, second, put):
    getattr(store, put)("a", NOW_MS + 1000)
    assert [is_up(one) for one in (first, second, first)] == [True, False, True]
    assert up_at(store) == NOW_MS + 1000


def test_with_nothing_near_a_scanner_is_up_when_it_looks_next(store, first, second):
    """It looks at the end of its safety interval, and announces only that."""
    assert is_up(first)
    assert up_at(store) == NOW_MS + 5000
    store.schedule("a", FAR_MS)
    assert not is_up(second)
    assert up_at(store) == NOW_MS + 5000


def test_a_scanner_that_may_not_look_again_promises_nothing(store, first):
    store.schedule("a", NOW_MS + 1000)
    before = timer(store)
    assert not first.hand_over().has_timer
    assert timer(store) == before


def test_a_scanner_that_learns_of_an_earlier_head_is_up_for_it(store, first, second):
    store.schedule("a", NOW_MS + 1000)
    is_up(first)
    # As after a lost notification: the first one got none.
    store.schedule("b", NOW_MS + 900)
    store.raw.hset(store.keys["meta"], "timer", f"{NOW_MS + 1000}:{first.name}")
    assert is_up(second)
    assert not is_up(first)


def test_a_later_head_stays_with_the_one_that_was_up_for_the_first(store, first, second):
    store.schedule("a", NOW_MS + 1000)
    store.schedule("b", NOW_MS + 2000)
    is_up(first)
    store.set_ms(NOW_MS + 1000)
    assert is_up(first)
    assert not is_up(second)


def test_a_scanner_in_the_midst_of_a_backlog_is_up(store):
    """It takes the next batch at once, so no other scanner has to wake."""
    for step in range(3):
        store.schedule(f"a{step}", NOW_MS - 10_000 + step)
    assert is_up(store.steps(batch_size=1))
    assert up_at(store) == NOW_MS
    assert not is_up(store.steps(batch_size=1))


@pytest.mark.parametrize("hears", [True, False], ids=["another listens", "the other is deaf"])
def test_when_the_one_that_is_up_leaves_another_or_all_are_told(
    store, listen, first, second, hears
):
    is_up(first)
    is_up(second)
    ears = listen(*[second.name] * hears)
    first.leave()
    assert ears.heard() == [second.name if hears else ALL]
    assert timer(store) is None or not hears
    assert is_up(second)


def test_when_one_that_is_not_up_leaves_nobody_is_told(store, first, second):
    is_up(first)
    is_up(second)
    store.raw.config_resetstat()
    second.leave()
    assert "cmdstat_publish" not in store.raw.info("commandstats")
    assert is_up(first)


@pytest.mark.parametrize("alive", [True, False])
def test_only_a_living_scanner_stands_in(store, first, second, alive):
    is_up(second)
    store.set_ms(NOW_MS + (14_000 if alive else 16_000))
    store.schedule_relayed("a", NOW_MS)
    is_up(first)
    assert timer(store)[1] == (second.name if alive else first.name)


def test_a_scanner_that_is_overdue_is_taken_for_dead(store, first, second):
    store.schedule_relayed("a", NOW_MS + 1000)
    is_up(first)
    store.set_ms(NOW_MS + 1100)
    assert not is_up(second, relay_in=1.0)
    store.set_ms(NOW_MS + 1101)
    assert is_up(second, relay_in=1.0)


def test_after_a_clock_set_back_a_promise_for_later_binds_nobody(store, first, second):
    is_up(first)
    store.set_ms(NOW_MS - 3_600_000)
    store.schedule("b", NOW_MS - 3_600_000 + 1000)
    # No scanner with that name listens, so the script notified all.
    assert is_up(second)
