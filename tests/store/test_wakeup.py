"""Waiting: for a time to the millisecond, for a token, for an interrupt; and a link that breaks."""

import threading
import time
from pathlib import Path

import pytest

from celery_delayq.errors import StoreError, StoreUnavailable
from celery_delayq.store import PooledConnection, Wakeup
from celery_delayq.store import wakeup as module
from celery_delayq.store.keys import Keys
from tests.store.support import endpoint
from tests.support.waiting import eventually

KEY = Keys("delayq")["wake"]
LONG = 30  # seconds that no test here takes


@pytest.fixture(params=["select", "poll"])
def wakeup_on(request, monkeypatch):
    if request.param == "poll":
        # As in a process with more than a thousand descriptors.
        monkeypatch.setattr(module, "FD_SETSIZE", 0)
    made = []

    def make(server):
        made.append(Wakeup(PooledConnection(endpoint(server)), KEY))
        return made[-1]

    yield make
    for wakeup in made:
        wakeup.close()


@pytest.fixture
def wakeup(wakeup_on, redis_server, raw):
    return wakeup_on(redis_server)


def blocked(raw) -> int:
    return raw.info("clients")["blocked_clients"]


def pops(raw) -> int:
    return raw.info("commandstats").get("cmdstat_blpop", {"calls": 0})["calls"]


def connections(raw) -> int:
    return sum(one["name"] == "celery_delayq" for one in raw.client_list())


def ids(raw) -> set[str]:
    return {one["id"] for one in raw.client_list() if one["name"] == "celery_delayq"}


class Waiting(threading.Thread):
    """A wait under way in another thread; `answer` is what it returned or raised."""

    def __init__(self, wakeup, seconds=LONG):
        super().__init__()
        self.wakeup, self.seconds, self.answer = wakeup, seconds, None
        self.start()

    def run(self):
        try:
            self.answer = self.wakeup.wait(self.seconds)
        except Exception as error:
            self.answer = error

    def result(self):
        self.join(10)
        assert not self.is_alive(), "still waiting"
        return self.answer


def test_a_wait_ends_by_itself_and_not_before_its_time(wakeup):
    for seconds in (0.0, 0.001, 0.05):
        start = time.monotonic()
        assert wakeup.wait(seconds) is False
        assert time.monotonic() - start >= seconds


def test_a_wait_for_no_time_or_less_returns_at_once(wakeup):
    assert wakeup.wait(0) is False
    assert wakeup.wait(-1) is False


def test_the_timer_does_not_depend_on_how_often_redis_looks(wakeup_on, start_redis):
    # At hz 1 Redis notices the end of a blocking pop up to a second late.
    wakeup = wakeup_on(start_redis("--hz", "1", "--dynamic-hz", "no"))
    start = time.monotonic()
    for _ in range(10):
        wakeup.wait(0.02)
    assert time.monotonic() - start < 2


def test_a_token_ends_a_wait_at_once_and_is_used_up(wakeup, raw):
    waiting = Waiting(wakeup)
    eventually(lambda: blocked(raw) == 1)
    raw.lpush(KEY, "1")
    assert waiting.result() is True
    assert raw.exists(KEY) == 0


def test_a_token_that_is_there_before_ends_the_next_wait(wakeup, raw):
    raw.lpush(KEY, "1")
    assert wakeup.wait(LONG) is True
    assert wakeup.wait(0.01) is False


def test_a_token_that_comes_between_two_waits_ends_the_next(wakeup, raw):
    assert wakeup.wait(0.01) is False
    raw.lpush(KEY, "1")
    assert wakeup.wait(LONG) is True


def test_one_token_wakes_one_of_two(wakeup_on, redis_server, raw):
    both = [Waiting(wakeup_on(redis_server)), Waiting(wakeup_on(redis_server))]
    eventually(lambda: blocked(raw) == 2)
    raw.lpush(KEY, "1")
    eventually(lambda: sum(not one.is_alive() for one in both))
    assert blocked(raw) == 1
    for one in both:
        one.wakeup.interrupt()
    assert sorted(one.result() for one in both) == [False, True]


def test_a_pop_stays_outstanding_from_one_wait_to_the_next(wakeup, raw):
    before = pops(raw)
    for _ in range(20):
        wakeup.wait(0.001)
    assert blocked(raw) == 1
    # It is counted when it ends.
    raw.lpush(KEY, "1")
    assert wakeup.wait(LONG) is True
    assert pops(raw) - before <= 2


def test_a_pop_that_ends_without_a_token_is_asked_again_within_one_wait(wakeup, raw, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 0.05)
    waiting, before = Waiting(wakeup), pops(raw)
    eventually(lambda: pops(raw) >= before + 3)
    assert waiting.is_alive()
    raw.lpush(KEY, "1")
    assert waiting.result() is True


def test_an_interrupt_ends_a_wait_under_way(wakeup, raw):
    waiting = Waiting(wakeup)
    eventually(lambda: blocked(raw) == 1)
    wakeup.interrupt()
    assert waiting.result() is False


def test_an_interrupt_before_a_wait_ends_that_one_and_no_other(wakeup):
    wakeup.interrupt()
    wakeup.interrupt()
    assert wakeup.wait(LONG) is False
    start = time.monotonic()
    assert wakeup.wait(0.05) is False
    assert time.monotonic() - start >= 0.05


def test_a_token_that_comes_with_an_interrupt_is_not_lost(wakeup, raw):
    wakeup.wait(0.001)
    raw.lpush(KEY, "1")
    wakeup.interrupt()
    assert sorted(wakeup.wait(1) for _ in range(2)) == [False, True]


def test_an_interrupt_after_the_end_does_nothing(wakeup):
    wakeup.close()
    wakeup.interrupt()
    wakeup.close()


def kill_waiting_connection(raw):
    (own,) = [one for one in raw.client_list() if one["name"] == "celery_delayq"]
    raw.client_kill_filter(_id=own["id"])


def test_a_broken_connection_is_unavailable_and_the_next_wait_makes_a_new_one(wakeup, raw):
    waiting = Waiting(wakeup)
    eventually(lambda: blocked(raw) == 1)
    kill_waiting_connection(raw)
    assert isinstance(waiting.result(), StoreUnavailable)
    raw.lpush(KEY, "1")
    assert wakeup.wait(LONG) is True


def test_a_connection_that_broke_between_two_waits_is_unavailable(wakeup, raw):
    wakeup.wait(0.001)
    kill_waiting_connection(raw)
    with pytest.raises(StoreUnavailable, match=r"^wake failed: "):
        wakeup.wait(LONG)
    raw.lpush(KEY, "1")
    assert wakeup.wait(LONG) is True


def test_a_server_that_is_away_is_unavailable_until_it_is_back(wakeup_on, start_redis):
    server = start_redis()
    wakeup = wakeup_on(server)
    wakeup.wait(0.001)
    server.kill()
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            wakeup.wait(LONG)
    server.start()
    server.client().lpush(KEY, "1")
    assert wakeup.wait(LONG) is True


def test_a_server_silent_for_longer_than_a_pop_may_last_is_unavailable(
    wakeup_on, start_redis, monkeypatch, short_timeout
):
    monkeypatch.setattr(module, "BLOCK", 0.2)
    server = start_redis()
    wakeup, client = wakeup_on(server), server.client()
    wakeup.wait(0.001)
    silent = ids(client)
    server.pause()
    with pytest.raises(StoreUnavailable, match=r"^wake failed: no answer to a blocking pop"):
        wakeup.wait(LONG)
    server.resume()
    # Its pop would take the token along, until the server has seen that it is gone.
    eventually(lambda: not ids(client) & silent)
    client.lpush(KEY, "1")
    assert wakeup.wait(LONG) is True


def test_silence_does_not_keep_a_short_wait_from_ending(wakeup_on, start_redis):
    server = start_redis()
    wakeup = wakeup_on(server)
    wakeup.wait(0.001)
    server.pause()
    assert wakeup.wait(0.01) is False
    server.resume()


def test_a_master_that_becomes_a_replica_is_unavailable(wakeup_on, start_redis):
    server = start_redis()
    client, waiting = server.client(), Waiting(wakeup_on(server))
    eventually(lambda: blocked(client) == 1)

    client.replicaof("127.0.0.1", 1)

    error = waiting.result()
    assert isinstance(error, StoreUnavailable)
    assert "UNBLOCKED" in str(error)


def test_a_token_of_another_type_is_an_error_of_the_store(wakeup, raw):
    raw.set(KEY, "x")
    with pytest.raises(StoreError) as caught:
        wakeup.wait(LONG)
    assert not isinstance(caught.value, StoreUnavailable)


def test_no_connection_or_descriptor_is_left_behind(wakeup_on, redis_server, raw):
    raw.ping()
    before = descriptors()
    for _ in range(20):
        wakeup = wakeup_on(redis_server)
        for _ in range(3):
            wakeup.wait(0)
            kill_waiting_connection(raw)
            with pytest.raises(StoreUnavailable):
                wakeup.wait(LONG)
        wakeup.wait(0)
        wakeup.close()
    eventually(lambda: connections(raw) == 0)
    assert descriptors() == before


def descriptors() -> int:
    folder = Path("/proc/self/fd")
    return sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0
