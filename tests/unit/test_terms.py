"""A call's terms for its entry: the accepted and the refused ones, the same in every call."""

from datetime import timedelta

import pytest

from celery_delayq.core.scheduling.options import PLAIN, entry_options_of
from celery_delayq.errors import InvalidOption

pytestmark = pytest.mark.core

LONG = "x" * 256
TEXT = "text of 1 to 255 bytes without NUL"
LIST = f"a list of at most 16 tags, each {TEXT}"
MANY = [str(number) for number in range(17)]
SPAN = "seconds, or a timedelta, of 0 to 9007199254 seconds"
BOTH = "delayq_late='skip' and delayq_grace together"
POLICIES = "one of reject, keep, replace, earliest, latest, debounce"
DEBOUNCE = "delayq_conflict='debounce' beside it"
KEY = "delayq_key beside it"
HOLDS = {"unique_until": "finished", "unique_for": 5}
HELD_FOR = "seconds, or a timedelta, of 0.001 to 9007199254 seconds"

WRONG = [
    *(({"key": key}, "key", key, TEXT) for key in ("", LONG, "a\0b", 5, b"k", "\ud800")),
    ({"key": "é" * 128}, "key", "é" * 128, TEXT),
    ({"conflict": "first"}, "conflict", "first", POLICIES),
    ({"conflict": ["keep"]}, "conflict", ["keep"], POLICIES),
    ({"max_wait": 5}, "max_wait", 5, DEBOUNCE),
    ({"max_wait": 5, "conflict": "keep"}, "max_wait", 5, DEBOUNCE),
    *(
        ({"max_wait": wait, "conflict": "debounce"}, "max_wait", wait, SPAN)
        for wait in (-1, "5", float("nan"), float("inf"), True, timedelta(-1))
    ),
    ({"tags": "a"}, "tags", "a", "a list of tags, like ['a']"),
    *(({"tags": tags}, "tags", tags, LIST) for tags in (5, [""], [LONG], ["a\0"], [5], MANY)),
    ({"late": "never"}, "late", "never", "run or skip"),
    ({"late": "skip"}, "late", "skip", BOTH),
    ({"grace": 5}, "grace", 5, BOTH),
    ({"grace": 5, "late": "run"}, "grace", 5, BOTH),
    ({"grace": -1, "late": "skip"}, "grace", -1, SPAN),
    ({"grace": timedelta(-1), "late": "skip"}, "grace", timedelta(-1), SPAN),
    *(({name: value}, name, value, KEY) for name, value in HOLDS.items()),
    *(
        ({"key": "k", "unique_until": value}, "unique_until", value, "delivered or finished")
        for value in ("started", 5)
    ),
    *(
        ({"key": "k", "unique_for": value}, "unique_for", value, HELD_FOR)
        for value in (0, -1, "soon", float("nan"), timedelta(0), True, [5])
    ),
]


def named(said):
    return {f"delayq_{name}": value for name, value in said.items()}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: ascii(wrong[0])[:40])
def test_the_error_for_an_unusable_term_names_the_expected_one(wrong):
    said, name, value, expected = wrong
    with pytest.raises(InvalidOption) as caught:
        entry_options_of(named(said))
    error = caught.value
    assert [error.name, error.value, error.expected] == [f"delayq_{name}", value, expected]


@pytest.mark.parametrize("grace", [0, 1.5, timedelta(seconds=1.5), 10**9])
def test_grace_is_seconds_or_a_timedelta(grace):
    seconds = grace.total_seconds() if isinstance(grace, timedelta) else grace
    assert (
        entry_options_of(named({"late": "skip", "grace": grace})).extras.grace_ms == seconds * 1000
    )


def test_the_longest_key_and_the_most_tags_are_taken():
    tags = MANY[:16]
    extras = entry_options_of(named({"key": "é" * 127 + "x", "tags": [*tags, *tags]})).extras
    assert (extras.key, extras.tags) == ("é" * 127 + "x", tuple(tags))


def test_a_tag_counts_once_and_a_set_of_them_will_do():
    assert entry_options_of(named({"tags": ["b", "a", "b"]})).extras.tags == ("b", "a")
    assert entry_options_of(named({"tags": {"a"}})).extras.tags == ("a",)


def test_a_policy_goes_with_its_longest_wait():
    assert entry_options_of(named({"conflict": "keep"})).conflict == "keep"
    assert (
        entry_options_of(named({"conflict": "debounce", "max_wait": 5})).conflict == "debounce 5000"
    )
    assert entry_options_of(named({"key": "k", "conflict": "reject"})).conflict == ""
    assert entry_options_of({}) is PLAIN
