"""What a bench's figures are taken to mean: which part of a call limits, and what is said of it."""

from dataclasses import replace

import pytest

from celery_delayq.bench.measurements import Figures, Limit, Link, Measure
from celery_delayq.bench.report import rows, sentences

LOCAL = Link(median=0.0001, p99=0.0002, per_byte=1e-9)
FAR = Link(median=0.02, p99=0.05, per_byte=1e-9)
NARROW = Link(median=0.001, p99=0.002, per_byte=1e-6)
TOO_FAST = Link(median=0.0001, p99=0.0002, per_byte=0.0)


def made(seconds, *, caller=0.0, redis=0.0, size=0.0, tasks=20_000):
    """What 100 calls took."""
    calls = 100
    return Measure(calls, tasks, seconds, seconds / calls * 2, size, caller, redis)


@pytest.mark.parametrize(
    ("measure", "link", "limit"),
    [
        (made(1.0, redis=0.96), LOCAL, Limit.REDIS),
        (made(1.0, caller=0.6, redis=0.3), LOCAL, Limit.CALLER),
        (made(2.4, caller=0.1, redis=0.3), FAR, Limit.ROUND_TRIP),
        (made(8.0, caller=0.5, redis=0.5, size=64_000), NARROW, Limit.BANDWIDTH),
        (made(1.0, caller=0.1, redis=0.2), LOCAL, Limit.OTHERS),
        # Redis does not tell: what nothing else explains is its own.
        (made(1.0, caller=0.1, redis=None), LOCAL, Limit.REDIS),
        (made(1.0, caller=0.6, redis=None), LOCAL, Limit.CALLER),
        (made(2.4, caller=0.1, redis=None), FAR, Limit.ROUND_TRIP),
        (made(8.0, caller=0.5, redis=None, size=64_000), NARROW, Limit.BANDWIDTH),
        # Fewer bytes over the same link, and then it is no limit.
        (made(8.0, caller=0.5, redis=7.0, size=640), NARROW, Limit.REDIS),
        (made(1.0, redis=0.96, size=64_000), TOO_FAST, Limit.REDIS),
        # A clock that is coarser than the calls adds up to more than there was.
        (made(1.0, caller=0.9, redis=1.2), LOCAL, Limit.REDIS),
    ],
)
def test_the_longest_part_of_a_call_limits(measure, link, limit):
    assert measure.limit(link) is limit


@pytest.fixture
def figures():
    return Figures(
        direct=True,
        link=LOCAL,
        one=made(0.0116, caller=0.001, redis=0.0002, tasks=100),
        cancel=made(0.0127, caller=0.001, redis=0.0002, tasks=100),
        bulk=made(1.0, caller=0.6, redis=0.3, size=64_000),
        hand_over=made(0.2149, caller=0.005, redis=0.2063),
        memory=461.4,
    )


def test_the_table_has_a_row_for_each_figure(figures):
    assert list(rows(figures)) == [
        ("round trip", "0.10 ms; one in a hundred takes over 0.20 ms"),
        ("schedule", "8,600 tasks/s one by one, 20,000 in bulk"),
        ("cancel", "7,900 tasks/s one by one"),
        ("hand over", "93,000 tasks/s; longest call 4.30 ms"),
        ("memory", "461 bytes of Redis for a waiting task"),
    ]


def test_the_sentences_say_what_to_expect_and_what_limits(figures):
    hand_over, bulk, one, memory = sentences(figures)

    assert hand_over == (
        "One scanner hands over about 93,000 tasks/s here. "
        "What limits: Redis's CPU (it was busy 96% of the time)."
    )
    assert bulk == (
        "schedule_many holds about 20,000 tasks/s from one process. "
        "What limits: this process (it was busy 60% of the time, Redis 30%)."
    )
    assert one == (
        "A single call takes about 0.12 ms to schedule a task, without what Celery does before, "
        "and 0.13 ms to cancel one. "
        "What limits: the round trip (0.10 ms of the 0.12 ms of a call)."
    )
    assert memory == "A million waiting tasks of this size need about 460 MB of Redis's memory."


@pytest.mark.parametrize(
    ("measure", "link", "said"),
    [
        (made(1.0, redis=None), LOCAL, "Redis's CPU, by all signs (it does not tell how busy"),
        (made(1.0, caller=0.6, redis=None), LOCAL, "this process (it was busy 60% of the time)."),
        (made(2.4, redis=0.3), FAR, "the round trip (20.00 ms of the 24.00 ms of a call)."),
        (
            made(8.0, redis=0.5, size=64_000),
            NARROW,
            "the bandwidth (about 1 MB/s; a call sends 64 kB).",
        ),
        (
            made(1.0, caller=0.1, redis=0.2),
            LOCAL,
            "other work on Redis or on these machines (Redis was busy 20% of the time, this pro",
        ),
    ],
)
def test_each_limit_has_its_words(figures, measure, link, said):
    *_, bulk, _one, _memory = sentences(replace(figures, bulk=measure, link=link))

    assert f"What limits: {said}" in bulk


def test_without_a_word_of_redis_on_memory_there_is_none(figures):
    silent = replace(figures, memory=None)

    assert "memory" not in dict(rows(silent))
    assert "MB" not in "".join(sentences(silent))
    assert silent.facts()["memory_bytes_per_task"] is None


def test_beside_another_broker_it_is_about_the_store_alone(figures):
    first, *_, last = sentences(replace(figures, direct=False))

    assert first.startswith("One scanner hands over about 93,000 tasks/s to lists of the store's ")
    assert last == (
        "The tasks of this app go on to another broker, at that broker's pace. It was not "
        "measured: all of this is about the store's Redis."
    )


def test_a_link_too_fast_to_be_told_is_null(figures):
    assert replace(figures, link=TOO_FAST).facts()["bytes_per_second"] is None
    assert figures.facts()["bytes_per_second"] == 1_000_000_000
