"""The statements about a Redis that restarts, is restored, or is full."""

import re

import pytest
import redis

from celery_delayq import DelayQ, Outcome
from tests.app.support import FAR, lists
from tests.readme.document import page
from tests.support.waiting import eventually


@pytest.fixture
def on(make_app):
    """Make a ``DelayQ`` on a server."""
    made = []

    def make(server):
        made.append(DelayQ(make_app(server.url())))
        return made[-1]

    yield make
    for delayq in made:
        delayq.close()


def configured():
    """The page's Redis settings, as options of a command line."""
    named = re.findall(r"`((?:maxmemory-policy|appendonly) \w+)`", page("operate/redis").text)
    return [word for line in dict.fromkeys(named) for word in f"--{line}".split()]


def hold(delayq, due=FAR, task_id="order-42"):
    delayq.app.send_task("shop.remind", (42,), task_id=task_id, delayq_at=due)


def test_a_redis_so_configured_keeps_waiting_tasks_when_it_is_killed(start_redis, on):
    assert "--appendonly" in configured()
    server = start_redis(*configured())
    delayq = on(server)
    hold(delayq)
    # While the disk is busy, Redis answers before it writes.
    eventually(lambda: not server.client().info("persistence")["aof_buffer_length"])

    server.kill()
    server.start()

    assert delayq.get("order-42").args == (42,)


def test_a_redis_without_persistence_forgets_waiting_tasks(start_redis, on):
    server = start_redis()
    delayq = on(server)
    hold(delayq)

    server.restart()

    assert delayq.get("order-42") is None


def test_a_task_delivered_since_an_older_copy_is_delivered_again(start_redis, on):
    server = start_redis("--dbfilename", "copy.rdb")
    delayq = on(server)
    hold(delayq, due=0)
    server.client().save()
    assert delayq.hand_over() == 1

    server.kill()
    server.start()

    assert lists(server.client()) == {}
    assert delayq.hand_over() == 1


@pytest.fixture
def filled(start_redis, on):
    """Schedule a task on a server with that policy for its memory, which is full then."""

    def filled(policy):
        server = start_redis("--maxmemory-policy", policy)
        delayq = on(server)
        hold(delayq)
        server.client().config_set("maxmemory", 1)
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            server.client().set("foreign", "x")
        return delayq

    return filled


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random"])
def test_a_policy_for_all_keys_deletes_waiting_tasks(filled, policy):
    assert filled(policy).get("order-42") is None


@pytest.mark.parametrize("policy", ["noeviction", "volatile-lru", "volatile-ttl"])
def test_any_other_policy_keeps_waiting_tasks(filled, policy):
    delayq = filled(policy)

    assert delayq.get("order-42").args == (42,)
    assert delayq.cancel("order-42") is Outcome.DONE
