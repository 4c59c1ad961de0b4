"""`DelayQ.health()`: a sentence for each thing that is wrong."""

import contextlib
import re
import socket
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

from celery_delayq.core.clock import from_ms
from celery_delayq.core.store import Counts, Pause
from celery_delayq.errors import InvalidOption, InvalidSetting
from celery_delayq.operations import health
from tests.app.support import FAR, LONG_AGO, redis_ms
from tests.app.test_status import give_another_layout
from tests.support.places import at
from tests.support.ports import free_port
from tests.support.shards import each
from tests.support.waiting import eventually

AMQP = "amqp://127.0.0.1:1//"
NOBODY = health.NO_SCANNER.sentence
NOW = 1_800_000_000  # Unix time
WELL = Counts(5, 1, 0, 2, 0, 0, 0, None, NOW * 1000)


@contextmanager
def alive(delayq):
    """Let a scanner be alive that does nothing."""
    delayq.app.conf.delayq_safety_interval = 300  # it counts as alive for three times as long
    with closing(delayq.services.steps_by_shard()[0]) as shard_steps:
        shard_steps.hand_over()
        yield shard_steps


@pytest.mark.parametrize("broker", ["redis", "one that is away"])
def test_with_a_scanner_and_nothing_overdue_nothing_is_wrong(delayq_app, url, broker):
    delayq = delayq_app(url if broker == "redis" else AMQP, delayq_url=url).delayq
    delayq.app.send_task("t", delayq_at=FAR)

    with alive(delayq):
        assert delayq.health() == []


def test_without_a_scanner_nothing_will_be_handed_over(app, delayq):
    assert delayq.health() == [NOBODY]


@pytest.mark.parametrize("queue", ["celery", "broken"])
def test_an_overdue_task_is_reported_with_its_due_time(app, delayq, redis, queue):
    redis.set("broken", "not a list")
    with alive(delayq) as shard_steps:
        app.send_task("t", queue=queue, delayq_at=LONG_AGO)
        if queue == "broken":
            shard_steps.hand_over()
        assert delayq.counts().refused == (queue == "broken")

        sentence, *others = delayq.health()

    assert sentence.startswith("a task that was due at 2001-09-09 01:46:40 UTC is overdue by ")
    assert sentence.endswith("; 60 s are allowed")
    refused = "1 task is refused by a queue, and tried again; 0 are allowed"
    assert others == ([refused] if queue == "broken" else [])


def wrong(counts, *pauses, **allowed):
    """The problems of a store with these counts and pauses."""
    sight = health.Sight(None, counts, pauses, bounds=health.Bounds(**allowed))
    return [line.sentence for line in health.seen(sight) if line.is_problem]


@pytest.mark.parametrize(
    ("overdue_ms", "allowed", "is_well"),
    [(60_000, 60, True), (60_001, 60, False), (1, 0, False), (0, 0, True), (-5000, 0, True)],
)
def test_the_bound_is_to_the_millisecond(overdue_ms, allowed, is_well):
    counts = replace(WELL, oldest_overdue_ms=NOW * 1000 - overdue_ms)

    assert (not wrong(counts, overdue=allowed)) == is_well


@pytest.mark.parametrize(
    ("held_ms", "resumed", "is_well"),
    [(600_000, False, True), (600_001, False, False), (600_001, True, True)],
)
def test_a_pause_is_forgotten_once_a_due_task_was_held_for_longer(held_ms, resumed, is_well):
    since = from_ms(NOW * 1000 - held_ms)
    pause = Pause("mail", None, since, False, 2, resumed, None, held_since=since)

    assert (not wrong(WELL, pause)) == is_well


def test_of_more_than_one_problem_each_is_told():
    counts = replace(WELL, scanners=0, dead=3, oldest_overdue_ms=(NOW - 90) * 1000)

    assert wrong(counts, overdue=30, dead=2) == [
        NOBODY,
        "a task that was due at 2027-01-15 07:58:30 UTC is overdue by 1 min 30 s; 30 s are allowed",
        "3 tasks are dead; 2 are allowed",
    ]


def test_dead_tasks_are_reported_beyond_the_allowed_number(app, delayq):
    at(delayq, "dead")

    with alive(delayq):
        assert delayq.health() == ["1 task is dead; 0 are allowed"]
        assert delayq.health(max_dead=1) == []


def test_a_store_that_began_after_its_scanner_is_reported(delayq_app, url, redis):
    delayq = delayq_app(url, delayq_shards=2).delayq
    both = delayq.services.steps_by_shard()
    with contextlib.ExitStack() as stack:
        for shard_steps in both:
            stack.enter_context(closing(shard_steps)).hand_over()
        assert delayq.health() == []
        joined_ms = int(redis_ms(redis))
        eventually(lambda: redis_ms(redis) > joined_ms + 1)

        # One node of a Cluster loses its data.
        lost = delayq.services.entries.shards[1].scripts.keys
        redis.delete(*lost.names)
        both[1].go_on_as(both[1].name)
        both[1].hand_over()
        [sentence] = delayq.health()

    assert re.match(r"this store began [\d smin]+ ago, its scanner [\d smin]+ ago: ", sentence)


def test_a_load_into_an_empty_store_is_its_beginning(delayq_app, url):
    one, two = (delayq_app(url, delayq_prefix=prefix).delayq for prefix in ("one", "two"))
    one.app.send_task("t", task_id="a", delayq_at=FAR)
    lines = list(one.dump())

    two.load(lines)

    assert one.counts().began_ms < two.counts().began_ms <= two.counts().now_ms


def test_a_store_that_is_away_is_a_sentence_with_its_address(delayq_app):
    url = f"redis://127.0.0.1:{free_port()}/0"

    [sentence] = delayq_app(url).delayq.health()

    assert sentence.startswith(f"the store {url} cannot be read: ")
    assert "refused" in sentence


def test_a_store_that_refuses_is_a_sentence(delayq, redis):
    for meta in each("meta"):
        redis.set(meta, "somebody's")

    [sentence] = delayq.health()

    assert "WRONGTYPE" in sentence


def test_a_store_of_another_layout_is_a_sentence_whenever_it_is_asked(delayq, redis):
    with alive(delayq):
        assert delayq.health() == []
    give_another_layout(redis)

    assert [one.partition(";")[0] for one in delayq.health()] == [
        "the store has layout '2', this process '1'"
    ]


def test_scanners_with_another_broker_are_a_problem_while_they_are_alive(delayq_app, url):
    ours, other = delayq_app(url).delayq, delayq_app(AMQP, delayq_url=url).delayq
    where = url.partition("//")[2].partition("/")[0]

    with alive(ours) as shard_steps:
        assert ours.health() == []
        [sentence] = other.health()
        assert sentence == (
            f"this store's scanners have the broker redis, database 0 on {where}, this app has "
            "amqp, virtual host / on 127.0.0.1:1: this app's calls that change the store are "
            "refused; give each app a delayq_prefix of its own, or both the same broker_url"
        )
        assert other.health(here=True) == []
        shard_steps.leave()

    assert other.health() == [NOBODY]


def test_a_wrong_setting_is_an_error(delayq_app, url):
    with pytest.raises(InvalidSetting, match="delayq_timeout"):
        delayq_app(url, delayq_timeout=0).delayq.health()


def test_health_with_here_asks_for_a_scanner_of_this_host_and_for_nothing_else(
    app, delayq, monkeypatch
):
    with alive(delayq):
        app.send_task("t", delayq_at=LONG_AGO)
        assert delayq.health(here=True) == []

        monkeypatch.setattr(socket, "gethostname", lambda: "web9")

        assert delayq.health(here=True) == ["no scanner on this host, web9, is alive"]


@pytest.mark.parametrize("host", ["web", "web10", "1:web1", "web1:4711"])
def test_a_host_of_a_similar_name_is_another_one(delayq, monkeypatch, host):
    monkeypatch.setattr(socket, "gethostname", lambda: "web1")
    with alive(delayq):
        assert delayq.health(here=True) == []
        monkeypatch.setattr(socket, "gethostname", lambda: host)
        assert delayq.health(here=True) != []


@pytest.mark.parametrize(
    ("given", "value", "expected"),
    [
        *(("max_overdue", value, "a number of seconds from 0") for value in
          (-1, float("nan"), float("inf"), "60", None, True)),
        ("max_paused", -1, "a number of seconds from 0"),
        *(("max_dead", value, "a whole number of tasks from 0") for value in
          (-1, 1.0, "1", None, False)),
        *(("here", value, "true or false") for value in (1, None, "web1")),
    ],
)  # fmt: skip
def test_a_bound_that_is_none_is_an_error(delayq, given, value, expected):
    with pytest.raises(InvalidOption) as caught:
        delayq.health(**{given: value})

    assert str(caught.value) == f"{given} is {value!r}; expected {expected}"
