"""The wake-up on a real Redis: a token, a timer, or an interruption, whichever comes first."""

import os
import resource
import threading
import time

import pytest

from celery_delayq.errors import StoreUnavailable
from celery_delayq.store import Endpoint, PooledConnection, Wakeup, endpoint, wakeup
from tests.support.waiting import eventually

KEY = "{delayq:0}:wake"


@pytest.fixture
def redis(redis_server, redis_url):
    with redis_server.client() as client:
        yield client


@pytest.fixture
def make_wakeup(redis_server, redis):
    made = []

    def make(endpoint=None):
        made.append(Wakeup(PooledConnection(endpoint or Endpoint(path=redis_server.socket)), KEY))
        return made[-1]

    yield make
    for one in made:
        one.close()


def blocked(redis):
    return redis.info("clients")["blocked_clients"]


def pops(redis):
    return redis.info("commandstats").get("cmdstat_blpop", {"calls": 0})["calls"]


def elapsed(wakeup, seconds):
    started = time.monotonic()
    woken = wakeup.wait(seconds)
    return woken, time.monotonic() - started


def test_a_token_that_is_there_ends_the_wait_at_once(make_wakeup, redis):
    redis.lpush(KEY, "1")
    woken, seconds = elapsed(make_wakeup(), 60)
    assert woken
    assert seconds < 5


def test_a_token_that_comes_ends_the_wait(make_wakeup, redis):
    def push():
        eventually(lambda: blocked(redis) == 1)
        redis.lpush(KEY, "1")

    thread = threading.Thread(target=push)
    thread.start()
    woken, seconds = elapsed(make_wakeup(), 60)
    thread.join()
    assert woken
    assert seconds < 5


def test_the_timer_ends_the_wait_and_not_before_its_time(make_wakeup):
    wakeup = make_wakeup()
    for wanted in (0.02, 0.05, 0.001):
        woken, seconds = elapsed(wakeup, wanted)
        assert not woken
        assert wanted <= seconds < wanted + 1


def test_the_pop_stays_outstanding_from_one_wait_to_the_next(make_wakeup, redis):
    wakeup, before = make_wakeup(), pops(redis)
    for _ in range(20):
        wakeup.wait(0.001)
    assert pops(redis) - before <= 1
    assert blocked(redis) == 1


def test_a_token_between_two_waits_is_not_lost(make_wakeup, redis):
    wakeup = make_wakeup()
    wakeup.wait(0.001)
    eventually(lambda: blocked(redis) == 1)
    redis.lpush(KEY, "1")
    assert wakeup.wait(60)


def test_an_interruption_ends_the_wait_under_way(make_wakeup, redis):
    wakeup = make_wakeup()

    def interrupt():
        eventually(lambda: blocked(redis) == 1)
        wakeup.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    woken, seconds = elapsed(wakeup, 60)
    thread.join()
    assert not woken
    assert seconds < 5


def test_an_interruption_before_the_wait_ends_the_next_one(make_wakeup):
    wakeup = make_wakeup()
    wakeup.interrupt()
    assert elapsed(wakeup, 60)[1] < 5


def test_interrupting_a_closed_wakeup_is_no_error(make_wakeup):
    wakeup = make_wakeup()
    wakeup.close()
    wakeup.interrupt()


def test_a_connection_that_redis_closed_is_an_error_once(make_wakeup, redis):
    wakeup = make_wakeup()
    wakeup.wait(0.001)
    eventually(lambda: blocked(redis) == 1)
    redis.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(StoreUnavailable):
        wakeup.wait(5)
    wakeup.wait(0.001)
    eventually(lambda: blocked(redis) == 1)


def test_a_pop_that_redis_gave_up_is_repeated(make_wakeup, redis, monkeypatch):
    monkeypatch.setattr(wakeup, "BLOCK", 0.1)
    waiting, before = make_wakeup(), pops(redis)
    assert waiting.wait(0.6) is False
    assert 2 <= pops(redis) - before <= 6
    redis.lpush(KEY, "1")
    assert waiting.wait(60) is True


def test_a_silent_link_is_given_up(make_wakeup, start_redis, monkeypatch):
    monkeypatch.setattr(wakeup, "BLOCK", 0.1)
    monkeypatch.setattr(wakeup, "TIMEOUT", 0.1)
    server = start_redis()
    silent = make_wakeup(Endpoint(path=server.socket))
    silent.wait(0.001)
    server.pause()
    with pytest.raises(StoreUnavailable, match="no answer to a blocking pop"):
        silent.wait(60)


def test_a_server_that_does_not_answer_the_greeting_is_given_up(
    make_wakeup, start_redis, monkeypatch
):
    monkeypatch.setattr(endpoint, "TIMEOUT", 0.1)
    server = start_redis()
    server.pause()
    started = time.monotonic()
    with pytest.raises(StoreUnavailable):
        make_wakeup(Endpoint(path=server.socket)).wait(60)
    assert time.monotonic() - started < 5


def test_it_works_beyond_the_descriptors_that_select_takes(make_wakeup, redis):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = wakeup.FD_SETSIZE + 100
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip("this machine does not allow as many descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    opened = []
    try:
        while not opened or opened[-1] < wakeup.FD_SETSIZE:
            opened.append(os.open(os.devnull, os.O_RDONLY))
        high = make_wakeup()
        redis.lpush(KEY, "1")
        assert high.wait(60) is True
        assert high.wait(0.02) is False
        high.interrupt()
        assert elapsed(high, 60)[1] < 5
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
