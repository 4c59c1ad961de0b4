"""Answers and fences are kept as long as a request may arrive, and not much longer."""

from dataclasses import replace

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Membership
from tests.store import requests
from tests.store.requests import TIMEOUT_US, cancel, now_us, reschedule, schedule
from tests.store.support import FAR_MS, NOW_MS, TIMEOUT_MS

KEPT = ("calls", "calls_old")
HOUR_US = 3_600_000_000


def kept(store) -> int:
    return sum(store.raw.hlen(store.keys[name]) for name in KEPT)


def another_call(store):
    cancel(store, "nobody").answer()


def pass_us(store, us):
    store.set_us(now_us(store) + us)


at_any_time = pytest.mark.parametrize("started", range(0, TIMEOUT_US * 2, TIMEOUT_US // 4))


def moments(store, deadline):
    """Calls at every moment of a generation, until this deadline."""
    while now_us(store) < deadline:
        pass_us(store, TIMEOUT_US // 20)
        another_call(store)
        yield


@at_any_time
def test_an_answer_is_known_as_long_as_its_call_lasts(store, started):
    another_call(store)
    pass_us(store, started)
    call = schedule(store, "a", when=When("after", 0))
    first = call.answer()
    store.steps().hand_over()
    for _ in moments(store, call.deadline):
        assert now_us(store) > call.deadline or call.answer() == first
    assert store.arrived() == ["a"]


@at_any_time
def test_a_fence_stands_as_long_as_a_request_before_it_may_come(store, started):
    another_call(store)
    pass_us(store, started)
    late = schedule(store, "a")
    pass_us(store, 1)
    cancel(store, "a").answer()
    for _ in moments(store, late.deadline):
        assert late.send() in ([b"stale"], [b"late"])
    assert store.places("a") == []


def test_an_answer_is_kept_for_the_longest_call_of_all(store):
    long = 20.0
    requests.join(store, Membership(long))
    call = requests.schedule(store, "a", when=When("after", 0))
    call = requests.replace(call, deadline=call.issued + int(long * 1_000_000))
    first = call.answer()
    store.steps().hand_over()
    for _ in range(19):
        pass_us(store, 1_000_000)
        another_call(store)
        assert call.answer() == first


def test_answers_and_fences_that_no_request_can_need_are_forgotten(store):
    for number in range(50):
        cancel(store, f"a{number}").answer()
    assert kept(store) == 100
    for _ in range(3):
        pass_us(store, TIMEOUT_US + 1000)
        another_call(store)
    # One call per generation, each with its answer and its fence; the last one began a third.
    assert kept(store) <= 6


def test_memory_stays_bounded_whatever_is_asked(store):
    """A hundred calls a second, for two minutes."""
    most = 0
    call = cancel(store, "a")
    for number in range(1200):
        pass_us(store, 100_000)
        now = now_us(store)
        requests.replace(
            call, operation=b"%d" % number, issued=now, deadline=now + TIMEOUT_US
        ).answer()
        most = max(most, *(len(store.known_calls(name)[0]) for name in KEPT))
    assert most <= TIMEOUT_US // 100_000 + 1


@pytest.mark.parametrize("kind", ["schedule", "cancel", "reschedule"])
def test_every_kind_of_call_turns_the_generations(store, kind):
    another_call(store)
    pass_us(store, TIMEOUT_US + 1000)
    if kind == "schedule":
        schedule(store, "a").answer()
    else:
        store.schedule("a", FAR_MS)
        store.raw.hset(store.keys["meta"], "turned", now_us(store) // 1000 - TIMEOUT_MS - 1)
        store.raw.delete(store.keys["calls_old"])
        {"cancel": cancel, "reschedule": reschedule}[kind](store, "a").answer()
    assert store.raw.exists(store.keys["calls_old"])


def test_after_the_clock_was_set_back_by_an_hour_calls_go_on_and_are_forgotten(store):
    for number in range(20):
        cancel(store, f"a{number}").answer()
    pass_us(store, -HOUR_US)
    call = schedule(store, "a", when=When("after", 0))
    first = call.answer()
    store.steps().hand_over()
    another_call(store)
    assert call.answer() == first
    for _ in range(4):
        pass_us(store, TIMEOUT_US + 1000)
        another_call(store)
    assert kept(store) <= 8
    assert store.arrived() == ["a"]


def test_an_answer_from_before_the_clock_was_set_back_is_known_after_it(store):
    another_call(store)
    pass_us(store, 1_000_000)
    call = cancel(store, "a")
    first = call.answer()
    pass_us(store, -HOUR_US)
    another_call(store)  # begins another generation
    store.schedule("a", FAR_MS)
    again = replace(call, issued=call.issued - HOUR_US, deadline=call.deadline - HOUR_US)
    assert again.answer() == first == b"not_found"
    assert store.places("a") == ["due"]


@pytest.mark.parametrize("hour", [-HOUR_US, HOUR_US], ids=["back", "forward"])
def test_a_caller_follows_a_clock_that_was_set_by_an_hour(store, hour):
    store.schedule("a", FAR_MS)
    pass_us(store, hour)
    assert store.schedule("b", FAR_MS) == FAR_MS
    # A record of the future can still be changed.
    assert [store.reschedule(one, When("at", 7))[1] for one in "ab"] == [7, 7]


def test_a_request_of_before_the_clock_was_set_back_is_refused(store):
    call = schedule(store, "a")
    store.set_ms(NOW_MS - 3_600_000)
    assert call.send() == [b"join"]
    assert store.places("a") == []


def test_a_call_is_told_the_same_after_redis_s_clock_was_set_forward(store):
    store.schedule("a", FAR_MS)
    another_call(store)
    pass_us(store, TIMEOUT_US - 100_000)
    call = cancel(store, "a")
    first = call.answer()
    pass_us(store, 200_000)
    another_call(store)  # begins a generation
    pass_us(store, 600_000)  # the clock; so the caller's end of the call is later as well
    now = now_us(store)

    assert requests.replace(call, issued=now, deadline=now + TIMEOUT_US).answer() == first


def test_a_turn_that_is_no_time_is_mended_by_the_next_call(store):
    store.raw.hset(store.keys["meta"], "turned", "x")
    another_call(store)
    assert store.raw.hget(store.keys["meta"], "turned").isdigit()
