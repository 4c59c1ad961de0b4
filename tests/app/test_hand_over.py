"""One `hand_over` delivers all due tasks, and leaves no key of the step behind."""

import pytest

from celery_delayq.errors import BrokerDown
from tests.app.support import LONG_AGO
from tests.support.places import at
from tests.support.ports import free_port
from tests.support.shards import each, keys_of

pytestmark = pytest.mark.core


@pytest.fixture
def relayed(delayq_app, url):
    """An app whose tasks wait in Redis and are published to a broker in this process."""
    return delayq_app("memory://localhost", delayq_url=url)


def test_a_hand_over_that_finds_no_broker_leaves_no_scanner_behind(delayq_app, url, redis):
    app = delayq_app(f"amqp://guest@127.0.0.1:{free_port()}//", delayq_url=url)
    app.send_task("t", delayq_at=LONG_AGO)

    with pytest.raises(BrokerDown):
        app.delayq.hand_over()

    assert app.delayq.counts().scanners == 0
    # All were notified of the task, and no scanner has recorded when it wakes.
    timers = filter(None, (redis.hget(key, "timer") for key in each("meta")))
    assert {one.partition(b":")[2] for one in timers} == {b""}


def test_all_leases_that_ran_out_are_taken_back_whatever_the_batch_size(relayed):
    relayed.conf.delayq_batch_size = 2
    at(relayed.delayq, "lapsed", *"abcde", queue="celery")

    assert relayed.delayq.hand_over() == 5

    counts = relayed.delayq.counts()
    assert (counts.scheduled, counts.in_flight) == (0, 0)


def spoil(_, redis, task_id):
    record = redis.hget(keys_of(task_id)["records"], task_id)
    redis.hset(keys_of(task_id)["records"], task_id, b"0" + record[1:])


ASIDE = {
    "dead": spoil,
    "paused": lambda delayq, *_: delayq.pause(task="aside"),
}


@pytest.mark.parametrize("state", ["dead", pytest.param("paused", marks=pytest.mark.operations)])
def test_a_batch_of_nothing_but_dead_or_paused_tasks_is_not_the_last(relayed, redis, state):
    """A batch ends after a megabyte."""
    for number in range(3):
        relayed.send_task("aside", ("x" * 600_000,), task_id=f"{number}", delayq_at=LONG_AGO)
        ASIDE[state](relayed.delayq, redis, f"{number}")
    relayed.send_task("t", delayq_at=LONG_AGO + 1)

    assert relayed.delayq.hand_over() == 1

    counts = relayed.delayq.counts()
    assert (counts.scheduled, getattr(counts, state)) == (0, 3)
