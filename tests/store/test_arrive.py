"""Copies that arrive at workers: the first one stays the first, whichever attempt it is."""

from dataclasses import replace

import pytest

from celery_delayq.core import clock
from celery_delayq.core.store import Keys
from celery_delayq.core.store.copies import Copies
from tests.store.support import NOW_MS

PAUSE_MS = 60_000  # the longest time without a mark that ages marks
GENERATION_MS = 50_000  # of these tests


@pytest.fixture(autouse=True)
def short_generations(store):
    store.membership = replace(
        store.membership, remember=(GENERATION_MS / 1000 - 30.0, 1000)
    )  # and a lease


def generations(store):
    """How many marks each of the two generations has."""
    return [
        sum(len(field) == 16 for field in store.raw.hkeys(store.keys[name]))
        for name in ("arrived", "arrived_old")
    ]


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1), (1, 7)])
def test_the_copy_that_arrives_first_stays_first(store, first, second):
    arrived = [store.arrive("one", attempt) for attempt in (first, second, first, second)]
    assert arrived == [first] * 4


@pytest.mark.parametrize(
    "texts",
    [
        ("a", "b", ""),
        ("ab", "", ""),
        ("b", "a", ""),
        ("", "a", "b"),
        ("a', 'b",),
        ("a", "b"),
        ("another",),
    ],
)
def test_another_hand_over_has_a_first_of_its_own_though_its_texts_look_alike(store, texts):
    store.arrive("a", "", "b", 1)
    assert store.arrive(*texts, 2) == 2
    assert store.arrive("a", "", "b", 2) == 1


@pytest.mark.parametrize("text", ["", "\x00", "\n", "{x}", "\ud800", "日本", "x" * 10_000])
def test_a_mark_is_of_one_size_whatever_it_names(store, text):
    store.arrive(text, 3)

    assert store.arrive(text, 1) == 3
    assert {len(one) for one in store.raw.hkeys(store.keys["arrived"])} == {
        16,
        len("since"),
        len("last"),
    }


def test_it_is_known_until_the_next_generation_ends(store):
    store.arrive("one", 1)
    store.set_ms(NOW_MS + GENERATION_MS - 1)
    store.arrive("last of the first", 1)
    store.set_ms(NOW_MS + GENERATION_MS)
    store.arrive("first of the second", 1)
    assert generations(store) == [1, 2]
    store.set_ms(NOW_MS + 2 * GENERATION_MS - 1)
    assert store.arrive("one", 2) == 1
    assert store.arrive("last of the first", 2) == 1

    store.set_ms(NOW_MS + 2 * GENERATION_MS)
    store.arrive("first of the third", 1)

    assert generations(store) == [1, 1]
    assert store.arrive("one", 2) == 2
    assert store.arrive("first of the second", 2) == 1


def test_a_longer_lease_makes_a_longer_generation(store):
    store.arrive("one", 1, lease=40.0)
    store.set_ms(NOW_MS + GENERATION_MS + 9_999)
    store.arrive("two", 1, lease=40.0)
    assert generations(store) == [2, 0]

    store.set_ms(NOW_MS + GENERATION_MS + 10_000)
    store.arrive("three", 1, lease=40.0)

    assert generations(store) == [1, 2]


def test_a_generation_lasts_an_hour_and_a_lease_and_a_lease_may_take_an_hour(store):
    store.membership = replace(store.membership, remember=(3600, 1000))
    for minute in range(2 * 60):
        store.set_ms(NOW_MS + minute * PAUSE_MS)
        store.arrive(f"at {minute}", 1, lease=3600.0)
    assert generations(store) == [120, 0]

    store.set_ms(NOW_MS + 120 * PAUSE_MS)
    store.arrive("at 120", 1, lease=3600.0)

    assert generations(store) == [1, 120]


@pytest.mark.parametrize("pauses", [1, 3])
def test_however_long_nothing_arrives_a_mark_is_known(store, pauses):
    """The broker or the workers were away for long: the next copy is still recognised."""
    store.arrive("before the last generation ended", 1)
    store.set_ms(NOW_MS + GENERATION_MS)
    for pause in range(1, pauses + 1):
        store.arrive(f"before pause {pause}", 1)
        store.set_ms(NOW_MS + GENERATION_MS + pause * 86_400_000)

    store.arrive("after the pauses", 1)

    assert store.arrive("before the last generation ended", 2) == 1
    assert generations(store) == [pauses + 1, 1]


@pytest.mark.parametrize(("pause_ms", "counts"), [(PAUSE_MS, True), (PAUSE_MS + 1, False)])
def test_a_minute_without_a_mark_counts_and_more_does_not(store, pause_ms, counts):
    store.arrive("one", 1)
    store.set_ms(NOW_MS + pause_ms)
    store.arrive("two", 1)
    assert generations(store) == ([1, 1] if counts else [2, 0])


def test_a_generation_ends_as_well_when_it_has_so_many_marks(store):
    store.membership = replace(store.membership, remember=(3600, 3))
    for number in range(3):
        store.arrive(f"a{number}", 1)
    assert generations(store) == [3, 0]

    for number in range(3):
        store.arrive(f"b{number}", 1)
    assert generations(store) == [3, 3]
    assert store.arrive("a0", 2) == 1

    store.arrive("c", 1)
    assert generations(store) == [1, 3]
    assert store.arrive("b0", 2) == 1


def test_a_copy_that_arrives_again_ends_no_generation_and_writes_nothing(store):
    store.arrive("one", 1)
    store.set_ms(NOW_MS + GENERATION_MS)
    before = store.snapshot()
    store.arrive("one", 1)
    store.arrive("one", 2)
    assert store.snapshot() == before


@pytest.mark.parametrize("back_ms", [1, 1000, GENERATION_MS - 1])
def test_a_clock_that_is_set_back_a_little_ends_no_generation(store, back_ms):
    store.arrive("one", 1)
    store.set_ms(NOW_MS - back_ms)
    store.arrive("two", 1)
    assert generations(store) == [2, 0]


@pytest.mark.parametrize("field", ["since", "last"])
@pytest.mark.parametrize("value", ["99999999999999", "nan", "1e308", "-1", "x", ""])
def test_a_generation_with_a_wrong_age_does_not_last_for_ever(store, field, value):
    store.arrive("one", 1)
    store.raw.hset(store.keys["arrived"], field, value)
    for turn in range(1, 3):
        store.set_ms(NOW_MS + turn * GENERATION_MS)
        store.arrive(f"turn {turn}", 1)

    kept = [store.raw.hget(store.keys["arrived"], name) for name in ("since", "last")]
    assert kept[0] in {b"%d" % (NOW_MS + turn * GENERATION_MS) for turn in (1, 2)}
    assert kept[1] == b"%d" % (NOW_MS + 2 * GENERATION_MS)


def test_the_old_generation_is_not_freed_by_a_rename(store):
    """A RENAME frees the replaced key at once."""
    store.arrive("one", 1)
    store.set_ms(NOW_MS + GENERATION_MS)
    store.arrive("two", 1)
    store.raw.config_resetstat()
    store.set_ms(NOW_MS + 2 * GENERATION_MS)

    store.arrive("three", 1)

    stats = store.raw.info("commandstats")
    assert stats["cmdstat_unlink"]["calls"] == 1


@pytest.mark.parametrize("garbage", ["", "x", "\xff", "1:2"])
def test_a_mark_that_is_no_number_counts_as_none(store, garbage):
    store.arrive("one", 1)
    [mark] = set(store.raw.hkeys(store.keys["arrived"])) - {b"since", b"last"}
    store.raw.hset(store.keys["arrived"], mark, garbage)
    assert store.arrive("one", 2) == 2
    assert store.arrive("one", 1) == 2


def test_marks_are_spread_over_the_shards_and_found_again(store, monkeypatch):
    first, second = store.scripts, store.new_scripts()
    monkeypatch.setattr(second, "keys", Keys("delayq", 0, 2))
    asked = Copies([first, second], 30.0, (3600, 1000))
    names = [(f"a{number}",) for number in range(40)]
    soon = clock.monotonic() + 60
    assert {asked.first(name, 1, soon) for name in names} == {1}

    assert {asked.first(name, 2, soon) for name in names} == {1}
    counts = [store.raw.hlen(one.keys["arrived"]) - 2 for one in (first, second)]
    assert sum(counts) == 40
    assert min(counts) > 5
    second.connection.close()
