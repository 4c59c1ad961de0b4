"""The rights on the page suffice for a Redis user, and every one of them is needed."""

import re
import time
from functools import partial

import pytest

from celery_delayq.core import clock
from celery_delayq.core.servers.connection import Connection, packed
from celery_delayq.core.store import Outcome
from celery_delayq.core.store.changes import Removal
from celery_delayq.core.store.scripts import load
from celery_delayq.core.store.wakeup import TIMEOUT, Wakeup
from celery_delayq.errors import StoreError
from tests.operations.restricted import RestrictedStore, documented
from tests.store.support import CLOCK, NOW_MS

# Commands that are not called inside a script.
BY_CLIENT = {"eval", "evalsha", "subscribe", "ping", "client|setname", "select"}
# Without the first two, tasks may be late by a safety interval; the last one names connections.
FORGIVEN = {"subscribe", "ping", "client|setname"}
PUBLISHES = "return redis.call('PUBLISH', ARGV[1], '')"
TOMBSTONES = 10_000  # after so many deliveries, their tombstones move to another key


@pytest.fixture(scope="module")
def rule():
    return documented()


@pytest.fixture
def restricted(restricted_on, each_redis):
    """Make a store with these rights on a server of each version in turn."""
    return partial(restricted_on, each_redis)


@pytest.fixture
def restricted_on(rule):
    made = []

    def make(server, *more, without=""):
        made.append(RestrictedStore(server, [right for right in rule if right != without]))
        made[-1].allow(*more)
        return made[-1]

    yield make
    for store in made:
        store.close()


def test_the_tombstones_may_move_on(restricted):
    store = restricted()
    shard_steps = store.steps(batch_size=1000)
    store.flood(TOMBSTONES)

    while shard_steps.hand_over().handed_over:
        pass

    assert store.raw.exists(store.keys["tombstones_old"])


@pytest.mark.parametrize("known", [True, False])
def test_a_scanner_may_be_told_of_a_task(restricted, known, limits, monkeypatch):
    limits(wakeup_ping_s=0)  # it asks for a sign of life in each wait
    store = restricted()
    shard_steps = store.steps()
    wakeup = Wakeup(Connection(store._where), [store.keys], shard_steps.name)
    try:
        assert wakeup.listen()
        if known:
            shard_steps.hand_over(asleep=5)
        store.schedule("a")
        assert wakeup.wait(30)
        assert not wakeup.wait(0.1)
        for _ in range(2):
            store.raw.ping()  # Redis answers all clients in turn, so it has answered the scanner
        monkeypatch.setattr(clock, "monotonic", lambda: time.monotonic() + TIMEOUT + 1)
        assert not wakeup.wait(0.1)  # or it would have missed the answer
    finally:
        wakeup.close()


@pytest.mark.parametrize("channel", ["foreign", "{delayqx:0}:wake"])
def test_no_channel_of_somebody_else_s_may_be_used(restricted_on, redis_server, channel):
    for command in (["SUBSCRIBE", channel], ["EVAL", PUBLISHES, "0", channel]):
        with pytest.raises(StoreError, match=r"(?i)permission|can't publish"):
            restricted_on(redis_server)._client().execute("foreign", packed(command))


def test_no_command_is_allowed_that_is_not_called(rule):
    called = {
        name.lower()
        for script in load().values()
        for name in re.findall(r"redis\.p?call\('(\w+)'", script.text)
    }
    allowed = {word[1:] for word in rule if word.startswith("+")}
    assert allowed == called | BY_CLIENT


@pytest.mark.parametrize("command", ["GET foreign", "SET foreign x", "KEYS *", "FLUSHALL"])
def test_nothing_else_is_allowed(restricted_on, redis_server, command):
    with pytest.raises(StoreError, match=r"(?i)permission"):
        restricted_on(redis_server)._client().execute("foreign", packed(command.split()))


@pytest.mark.parametrize("right", sorted(BY_CLIENT - FORGIVEN))
def test_a_scanner_cannot_do_without(restricted_on, redis_server, redis_url, right):
    store = restricted_on(redis_server, without=f"+{right}")
    shard_steps = store.steps()
    wakeup = Wakeup(Connection(store._where), [store.keys], shard_steps.name)

    def scan():
        for _ in range(2):
            shard_steps.hand_over()
            wakeup.listen()
            wakeup.wait(0.2)

    try:
        with pytest.raises(StoreError, match=r"(?i)permission"):
            scan()
    finally:
        wakeup.close()


@pytest.mark.parametrize("right", ["+unlink", "+rename"])
def test_a_cancel_without_the_right_to_move_the_tombstones_on_is_done_and_says_so(
    restricted, right
):
    store = restricted(without=right)
    store.raw.hset(store.keys["tombstones"], mapping=dict.fromkeys(range(TOMBSTONES), "c"))
    store.schedule("a")
    store.raw.hset(store.keys["meta"], "remember_since", NOW_MS)
    store.set_ms(NOW_MS + 6000)  # so that it begins a generation of calls

    outcome, change = store.entries.change("a", Removal())

    assert outcome is Outcome.DONE
    assert b'"a"' in change.cancelled.message
    assert store.record("a") is None


def test_without_the_right_to_a_queue_s_list_a_task_waits_and_the_reason_is_told(restricted):
    store = restricted("resetkeys", "~{delayq:*}:*", f"~{CLOCK}")
    store.schedule("a")

    seen = store.steps().hand_over()

    [(reason, count)] = seen.refused
    assert (count, seen.dead, store.places("a")) == (1, [], ["refused"])
    assert reason.startswith("celery: ")
    # The first form is Redis 7.0's, the second that of Redis 8 and Valkey.
    assert re.search("can't access at least one of the keys|No permissions to access a key", reason)
