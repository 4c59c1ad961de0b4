"""Waiting for a time to the millisecond, a notification or an interrupt; and a broken link."""

import os
import resource
import socket
import threading
import time
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest

from celery_delayq.core.hooks import Hooks
from celery_delayq.core.servers.connection import Connection
from celery_delayq.core.servers.endpoint import Endpoint
from celery_delayq.core.store import wakeup as module
from celery_delayq.core.store.keys import Keys
from celery_delayq.core.store.wakeup import Wakeup
from celery_delayq.errors import StoreUnavailable
from tests.store.support import endpoint
from tests.support.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.core, pytest.mark.libraries]

KEYS = [Keys("delayq", shard, 3) for shard in range(3)]
ALL, OWN = KEYS[0].channels("me")
LONG = 30  # seconds that no test here takes


@pytest.fixture(params=["select", "poll"])
def wakeup_on(request, limits):
    if request.param == "poll":
        # Like in a process with more than a thousand descriptors.
        limits(descriptors_of_select=0)
    made = []

    def make(server, name="me", *, listening=True):
        where = server if isinstance(server, Endpoint) else endpoint(server)
        made.append(Wakeup(Connection(where), KEYS, name))
        assert not listening or made[-1].listen()
        return made[-1]

    yield make
    for wakeup in made:
        wakeup.close()


@pytest.fixture
def wakeup(wakeup_on, redis_server, raw):
    return wakeup_on(redis_server)


@pytest.fixture
def silent_on(wakeup_on, limits):
    """The same for one that has heard nothing for long, and asks for a sign of life at once."""

    def make(server):
        with limits.within(wakeup_ping_s=0):
            return wakeup_on(server)

    return make


def calls(raw, name) -> int:
    return raw.info("commandstats").get(f"cmdstat_{name}", {"calls": 0})["calls"]


def rejected(raw, name) -> int:
    return raw.info("commandstats").get(f"cmdstat_{name}", {}).get("rejected_calls", 0)


def listeners(raw) -> set[str]:
    return {one["id"] for one in raw.client_list(_type="pubsub")}


def connections(raw) -> int:
    return sum(one["name"] == "celery_delayq" for one in raw.client_list())


def hears(wakeup, raw) -> bool:
    """Whether a notification ends a wait."""
    raw.publish(OWN, "")
    return wakeup.wait(LONG) == {0}


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
        self.join(30)
        assert not self.is_alive(), "still waiting"
        return self.answer


def test_a_wait_ends_by_itself_and_not_before_its_time(wakeup):
    for seconds in (-1, 0, 0.001, 0.05):
        start = time.monotonic()
        assert wakeup.wait(seconds) == set()
        assert time.monotonic() - start >= seconds


def test_a_wait_without_listening_ends_all_the_same(wakeup_on, redis_server):
    wakeup = wakeup_on(redis_server, listening=False)
    assert wakeup.wait(0.001) == set()
    wakeup.interrupt()
    assert wakeup.wait(LONG) == set()


ENDS = {
    "a notification for all": (lambda _, raw: raw.publish(ALL, ""), {0}),
    "its own notification": (lambda _, raw: raw.publish(OWN, ""), {0}),
    "an interrupt": (lambda wakeup, _: wakeup.interrupt(), set()),
}


@pytest.mark.parametrize(("end", "heard"), ENDS.values(), ids=ENDS)
def test_a_wait_under_way_ends_at_once_and_the_next_does_not(wakeup, raw, end, heard):
    waiting = Waiting(wakeup)
    end(wakeup, raw)
    assert waiting.result() == heard
    start = time.monotonic()
    assert wakeup.wait(0.01) == set()
    assert time.monotonic() - start >= 0.01


# The notifications that come first; which shards the next wait names.
EARLIER = {
    "one": ([OWN], {0}),
    "many of two shards": ([KEYS[1]["wake"], KEYS[2]["wake"]] * 100, {1, 2}),
    "more than fits one read": ([*[KEYS[1]["wake"]] * 2000, KEYS[2]["wake"]], {1, 2}),
}


@pytest.mark.parametrize(("channels", "heard"), EARLIER.values(), ids=EARLIER)
def test_all_earlier_notifications_end_the_next_wait_and_no_other(wakeup, raw, channels, heard):
    with raw.pipeline() as pipe:
        for channel in channels:
            pipe.publish(channel, "")
        pipe.execute()
    assert wakeup.wait(LONG) == heard
    assert wakeup.wait(0.01) == set()


def test_a_notification_for_one_scanner_is_not_heard_by_another(wakeup_on, redis_server, raw):
    one, other = wakeup_on(redis_server, "one"), wakeup_on(redis_server, "other")
    assert raw.publish(KEYS[0].channels("one")[1], "") == 1
    assert one.wait(LONG) == {0}
    assert other.wait(0.01) == set()
    assert raw.publish(ALL, "") == 2
    assert [one.wait(LONG), other.wait(LONG)] == [{0}, {0}]


def test_listening_twice_subscribes_once(wakeup, raw):
    before = calls(raw, "subscribe")
    assert wakeup.listen() is False
    assert calls(raw, "subscribe") == before


def test_each_subscription_says_that_a_rule_may_have_changed_meanwhile(redis_server, raw):
    heard = []
    where = Connection(endpoint(redis_server))
    hooks = Hooks(rules_changed=lambda: heard.append("changed"))
    with closing(Wakeup(where, KEYS, "me", hooks)) as wakeup:
        wakeup.listen()
        wakeup.listen()
        assert len(heard) == 1
        wakeup.name_is("other")
        wakeup.listen()
        assert len(heard) == 2
        raw.publish(KEYS[0].channels("other")[0], "rules")
        wakeup.wait(LONG)
        assert len(heard) == 3


def test_while_there_is_something_to_hear_nothing_is_sent(wakeup, raw, monkeypatch):
    before, now = calls(raw, "ping"), time.monotonic()
    for number in range(20):
        passed = now + number * 0.4 * module.PING_AFTER
        monkeypatch.setattr(module.clock, "monotonic", lambda passed=passed: passed)
        assert hears(wakeup, raw)
    assert calls(raw, "ping") == before


def test_a_silent_redis_is_asked_for_a_sign_of_life_now_and_then(wakeup_on, redis_server, raw):
    before = calls(raw, "ping")
    wakeup = wakeup_on(redis_server)
    for _ in range(20):
        wakeup.wait(0.001)
    assert calls(raw, "ping") == before


@pytest.mark.parametrize(("part", "asks"), [(0.6, 0), (0.8, 1)])
def test_a_wait_that_begins_late_in_a_silence_asks_for_a_sign_of_life(
    wakeup, raw, monkeypatch, part, asks
):
    """Redis has just been woken by the scanner's look, so another command costs it little."""
    before, now = calls(raw, "ping"), time.monotonic()
    monkeypatch.setattr(module.clock, "monotonic", lambda: now + part * module.PING_AFTER)
    wakeup.wait(0.0)
    raw.ping()  # which Redis answers after the one before
    assert calls(raw, "ping") == before + asks + 1


def test_a_sign_of_life_does_not_end_a_wait(wakeup_on, redis_server, raw, limits):
    limits(wakeup_ping_s=0.05)
    wakeup = wakeup_on(redis_server)
    waiting, before = Waiting(wakeup), calls(raw, "ping")
    eventually(lambda: calls(raw, "ping") >= before + 3)
    assert waiting.is_alive()
    raw.publish(OWN, "")
    assert waiting.result() == {0}


def test_an_interrupt_before_a_wait_ends_that_one_and_no_other(wakeup):
    wakeup.interrupt()
    wakeup.interrupt()
    assert wakeup.wait(LONG) == set()
    start = time.monotonic()
    assert wakeup.wait(0.05) == set()
    assert time.monotonic() - start >= 0.05


def test_a_notification_with_an_interrupt_is_not_lost(wakeup, raw):
    raw.publish(OWN, "")
    wakeup.interrupt()
    told = wakeup.wait(LONG)
    # The interrupt may have come alone; then the notification ends the next wait.
    assert told == {0} or wakeup.wait(LONG) == {0}


def test_an_interrupt_after_the_end_does_nothing(wakeup):
    wakeup.close()
    wakeup.interrupt()
    wakeup.close()


def kill_listeners(raw):
    raw.client_kill_filter(_type="pubsub")


@pytest.mark.parametrize("waits", [True, False], ids=["during a wait", "between two waits"])
def test_a_broken_connection_is_unavailable_and_the_next_listening_makes_a_new_one(
    wakeup, raw, waits
):
    waiting = waits and Waiting(wakeup)
    kill_listeners(raw)
    if waits:
        assert isinstance(waiting.result(), StoreUnavailable)
    else:
        with pytest.raises(StoreUnavailable, match=r"^wake failed: "):
            wakeup.wait(LONG)
    assert wakeup.listen() is True
    assert hears(wakeup, raw)


def test_a_server_that_is_away_is_unavailable_until_it_is_back(wakeup_on, start_redis):
    server = start_redis()
    wakeup = wakeup_on(server)
    server.kill()
    with pytest.raises(StoreUnavailable):
        wakeup.wait(LONG)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            wakeup.listen()
    server.start()
    assert wakeup.listen() is True
    assert hears(wakeup, server.client())


def test_a_server_that_answers_no_ping_is_unavailable(silent_on, start_redis, limits):
    server = start_redis()
    wakeup, client = silent_on(server), server.client()
    server.pause()
    refused = pytest.raises(StoreUnavailable, match=r"^wake failed: no answer to a PING")
    with limits.within(wakeup_answer_s=0.4), refused:
        wakeup.wait(LONG)
    server.resume()
    assert wakeup.listen() is True
    assert hears(wakeup, client)


def asked_long_ago(wakeup, raw, monkeypatch):
    """Let it ask for a sign of life, which Redis answers; its time for that is over by now."""
    before = calls(raw, "ping"), rejected(raw, "ping")
    wakeup.wait(0)
    raw.ping()  # which Redis answers after the one before
    raw.ping()
    assert (calls(raw, "ping") - 2, rejected(raw, "ping")) != before
    monkeypatch.setattr(module.clock, "monotonic", lambda: time.monotonic() + module.TIMEOUT + 1)


def test_a_long_time_between_two_waits_is_no_silence(silent_on, redis_server, raw, monkeypatch):
    """As after a pass that took longer than the time-out of an answer."""
    wakeup = silent_on(redis_server)
    asked_long_ago(wakeup, raw, monkeypatch)
    assert wakeup.wait(0.01) == set()


def test_silence_does_not_keep_a_short_wait_from_ending(wakeup_on, start_redis):
    server = start_redis()
    wakeup = wakeup_on(server)
    server.pause()
    assert wakeup.wait(0.01) == set()
    server.resume()


def test_a_server_that_does_not_answer_the_greeting_is_given_up(wakeup_on, start_redis, limits):
    limits(answer_s=0.1)
    server = start_redis()
    server.pause()
    started = time.monotonic()
    with pytest.raises(StoreUnavailable):
        wakeup_on(server, listening=False).listen()
    assert time.monotonic() - started < PATIENCE


@pytest.fixture
def limited(redis_server, raw):
    """An endpoint for a user with all rights except to subscribe to our channels, or to ping."""

    def allow(*rules):
        raw.execute_command(
            "ACL", "SETUSER", "limited", "reset", "on", ">pw", "~*", "+@all", *rules
        )
        return Endpoint(path=redis_server.socket, username="limited", password="pw")

    yield allow
    raw.execute_command("ACL", "DELUSER", "limited")


@pytest.mark.parametrize("rules", [["resetchannels"], ["allchannels", "-subscribe"]])
def test_without_the_right_to_subscribe_it_says_so_once_and_tries_again_later(
    wakeup_on, limited, caplog, monkeypatch, rules
):
    wakeup = wakeup_on(limited(*rules), listening=False)
    assert wakeup.listen() is False
    monkeypatch.setattr(wakeup, "_source", None)
    assert wakeup.listen() is False
    monkeypatch.undo()
    assert wakeup.wait(0.001) == set()
    monkeypatch.setattr(module.clock, "monotonic", lambda: time.monotonic() + module.PING_AFTER)
    assert wakeup.listen() is False
    [said] = [one for one in caplog.messages if "Redis refused SUBSCRIBE" in one]
    assert "ermission" in said
    limited("allchannels", "+@all")
    monkeypatch.setattr(module.clock, "monotonic", lambda: time.monotonic() + 100)
    assert wakeup.listen() is True


def test_without_the_right_to_ping_a_refusal_is_a_sign_of_life(
    silent_on, limited, raw, monkeypatch
):
    wakeup = silent_on(limited("allchannels", "-ping"))
    asked_long_ago(wakeup, raw, monkeypatch)
    assert wakeup.wait(0.01) == set()
    assert hears(wakeup, raw)


ROUNDS = 20


def test_no_connection_or_descriptor_is_left_behind(wakeup_on, redis_server, raw):
    raw.ping()
    before, others = descriptors(), connections(raw)  # of tests before this one, not collected yet
    for _ in range(ROUNDS):
        wakeup = wakeup_on(redis_server)
        for _ in range(3):
            kill_listeners(raw)
            with pytest.raises(StoreUnavailable):
                wakeup.wait(LONG)
            wakeup.listen()
        wakeup.close()
    eventually(lambda: connections(raw) <= others)
    # A leak would leave one of each round; other parts of this process open and close some, too.
    assert descriptors() < before + ROUNDS


def descriptors() -> int:
    folder = Path("/proc/self/fd")
    return sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0


def test_a_wake_up_works_beyond_the_descriptors_that_select_takes(redis_server, raw):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = module.FD_SETSIZE + 100
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip("this machine does not allow as many descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    opened = []
    try:
        while not opened or opened[-1] < module.FD_SETSIZE:
            opened.append(os.open(os.devnull, os.O_RDONLY))
        high = Wakeup(Connection(endpoint(redis_server)), KEYS, "me")
        high.listen()
        assert hears(high, raw)
        assert high.wait(0.02) == set()
        high.interrupt()
        assert high.wait(LONG) == set()
        high.close()
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_rest_ends_when_its_time_is_over_or_it_is_interrupted(wakeup):
    began = time.monotonic()
    wakeup.rest(0.05)
    assert time.monotonic() - began >= 0.05

    wakeup.interrupt()
    wakeup.rest(60)

    assert time.monotonic() - began < PATIENCE


class Announced:
    """Listens to sentinels, the first of which announces another master at once."""

    def __init__(self):
        self._ear, self._sentinel = socket.socketpair()
        self.sockets = []

    def listen(self):
        self.sockets = [self._ear]
        self._sentinel.send(b"x")

    def hear(self):
        return bool(self._ear.recv(1))

    def close(self):
        self._ear.close()
        self._sentinel.close()


def test_a_rest_begins_to_listen_and_ends_when_another_master_is_announced():
    with closing(Wakeup(mock.Mock(herald=Announced), KEYS, "me")) as wakeup:
        began = time.monotonic()
        wakeup.rest(60)
        assert time.monotonic() - began < PATIENCE
