"""A caller's side of a call: its repetitions, when it gives up, and its estimate of the time."""

import itertools
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from celery_delayq.core import clock
from celery_delayq.core.store.calls import AGAIN, DRIFT, Calls, RedisTime
from celery_delayq.core.store.keys import SCHEMA, Keys
from celery_delayq.core.store.membership import Membership, Registration
from celery_delayq.errors import StoreError, StoreFull, StoreUnavailable
from tests.store.support import SETTINGS

pytestmark = pytest.mark.core

TIMEOUT = 5.0
REDIS_S = 1_800_000_000.0  # Redis's clock when ours shows 0
DONE = [b"answer", b"done"]


class World:
    """Virtual time, and a Redis whose replies a test sets; each reply takes *slow* seconds."""

    def __init__(self, *replies, slow=0.0):
        self.now = 0.0
        self.slow = slow
        self.asked = []
        self.at = []
        self.joined = 0
        self.keys = Keys("delayq")
        self.settings = replace(SETTINGS, timeout=TIMEOUT)
        self._replies = iter(replies)

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        assert seconds >= 0
        self.now += seconds

    def redis_us(self, moment=None):
        return int((REDIS_S + (self.now if moment is None else moment)) * 1_000_000)

    @property
    def connection(self):
        return self

    def execute(self, step, command, until=None):
        return [b"mode", b"standalone"]

    def exchange(self, step, commands, until=None):
        return [0 for _ in commands]

    def call(self, name, *, until=None, **arguments):
        if name == "join":
            self.joined += 1
            known = {"schema": SCHEMA, "shards": str(arguments["shards"]), "store": "store"}
            texts = dict.fromkeys(("broker", "hosts", "app"), "") | {"format": "1"} | known
            words = {name: text.encode() for name, text in texts.items()}
            return SimpleNamespace(now=self.redis_us(), silent=0, began=-1, **words)
        self.at.append(self.now)
        self.asked.append(arguments)
        self.now += self.slow
        reply = next(self._replies)
        if isinstance(reply, BaseException):
            raise reply
        return [self.redis_us(), *reply]


def lost():
    return StoreUnavailable("cancel", "reset", True)


def refused():
    return StoreUnavailable("cancel", "refused", False)


@pytest.fixture
def call(monkeypatch):
    """Make a call in a world: ``call(world, pauses=[1])``."""

    def make(world, **options):
        monkeypatch.setattr(clock, "monotonic", world.monotonic)
        monkeypatch.setattr(clock, "sleep", world.sleep)
        member = Registration(world, Membership())
        return Calls(world, member.join).call("cancel", **options)

    return make


@pytest.fixture
def fails(call):
    """Make a call that fails; returns whether it may have run."""

    def make(world, **options):
        with pytest.raises(StoreUnavailable) as caught:
            call(world, **options)
        return caught.value.may_have_run

    return make


def values(world, name):
    return {arguments[name] for arguments in world.asked}


# Requests that may have reached Redis.


def test_a_request_without_an_answer_is_repeated_as_the_same_call(call):
    world = World(lost(), lost(), DONE)
    assert call(world, id="a") == [b"done"]
    assert world.at == pytest.approx([0, AGAIN, 2 * AGAIN])
    assert len(values(world, "operation")) == len(values(world, "deadline")) == 1
    assert values(world, "id") == {"a"}
    issued = [arguments["issued"] for arguments in world.asked]
    assert issued == sorted(set(issued))


def test_two_calls_are_two_operations(call):
    first, second = World(DONE), World(DONE)
    call(first)
    call(second)
    assert not values(first, "operation") & values(second, "operation")


@pytest.mark.parametrize(
    "replies",
    [[], [[b"stale"], *(refused() for _ in range(100))]],
    ids=["that may have run", "that got a verdict, of which a copy may run"],
)
def test_a_call_without_an_answer_fails_when_no_copy_of_it_can_run_any_more(fails, replies):
    world = World(*replies, *(lost() for _ in range(100)))
    assert fails(world)
    assert world.redis_us() >= max(values(world, "deadline"))
    assert world.now == pytest.approx(TIMEOUT)


@pytest.mark.parametrize("slow", [0.0, 0.3, 2.0])
def test_no_deadline_is_later_than_the_end_of_the_call(fails, slow):
    replies = [[b"late"], lost(), [b"stale"], refused(), *(lost() for _ in range(100))]
    world = World(*replies, slow=slow)
    fails(world, pauses=[0.1] * 100)
    assert max(values(world, "deadline")) <= world.redis_us(TIMEOUT) <= world.redis_us()


def test_a_call_that_lost_a_reply_goes_on_whatever_redis_says_next(call):
    world = World(lost(), refused(), FULL, FORBIDDEN, DONE)
    assert call(world) == [b"done"]
    assert len(world.asked) == 5


FULL, FORBIDDEN = StoreFull("cancel", "OOM"), StoreError("cancel", "NOPERM")
NO_REPLICAS = StoreUnavailable("cancel", "NOREPLICAS", False)
NO_REPLICAS.__cause__ = redis.ResponseError("NOREPLICAS")
# The replies, the pauses of the policy; whether the call may have run, its seconds, its requests.
FAILURES = {
    "without a policy, no way to Redis": ([refused()], [], False, 0, 1),
    "the pauses are used up": ([refused()] * 9, [0.5, 0.5], False, 1.0, 3),
    "Redis refuses after a verdict": ([[b"stale"], NO_REPLICAS], [], False, 0, 2),
    "Redis refuses to the end after a lost reply": ([lost(), *[FULL] * 100], [], True, TIMEOUT, 51),
    "the answer may be forgotten, as the clock was set forward": (
        *([lost(), [b"late"], [b"answer", b"not_found"]], [], True, TIMEOUT, 2),
    ),
}


@pytest.mark.parametrize("case", FAILURES.values(), ids=FAILURES)
def test_a_failed_call_knows_whether_it_may_have_run_and_takes_no_longer_than_it_must(fails, case):
    replies, pauses, may_have_run, took, requests = case
    world = World(*replies)
    assert fails(world, pauses=pauses) is may_have_run
    assert (world.now, len(world.asked)) == (pytest.approx(took), requests)


def test_a_clock_that_is_set_all_the_time_does_not_keep_a_caller(fails):
    world = World(*([b"late"] for _ in range(100)), slow=0.3)
    assert not fails(world)
    assert TIMEOUT <= world.now < TIMEOUT + 0.6


# Requests that did not reach Redis.


def test_a_refusal_by_redis_is_raised_at_once(call):
    world = World(FULL)
    with pytest.raises(StoreFull):
        call(world, pauses=[1, 1, 1])
    assert (world.now, len(world.asked)) == (0, 1)


def test_the_pauses_are_those_of_the_policy(call):
    world = World(refused(), refused(), refused(), DONE)
    call(world, pauses=[0.5, 1.0, 2.0])
    assert world.at == pytest.approx([0, 0.5, 1.5, 3.5])


@pytest.mark.parametrize("pause", [0.3, 2.0, 30.0])
def test_the_time_out_ends_it_whatever_the_policy_says(fails, pause):
    world = World(*(refused() for _ in range(99)))
    assert not fails(world, pauses=itertools.repeat(pause))
    assert world.now <= TIMEOUT
    assert len(world.asked) == -(-TIMEOUT // pause)


# Verdicts.


def test_a_stale_request_is_issued_anew(call):
    world = World([b"stale"], DONE, slow=0.01)
    call(world)
    first, second = world.asked
    assert second["issued"] > first["issued"]
    assert second["began"] == first["began"] == first["issued"]
    assert second["operation"] == first["operation"]


def test_a_request_that_is_late_by_a_clock_set_forward_is_repeated_at_that_time(call, monkeypatch):
    world = World([b"late"], DONE)
    told = iter([world.redis_us(), world.redis_us(3600), world.redis_us(3600)])
    monkeypatch.setattr(world, "redis_us", lambda *_: next(told))
    call(world)
    first, second = world.asked
    assert second["deadline"] - first["deadline"] == 3_600_000_000


def test_a_store_that_does_not_know_it_is_joined_and_asked_again(call):
    world = World([b"join"], DONE)
    assert call(world) == [b"done"]
    assert world.joined == 2


@pytest.mark.parametrize(
    ("verdict", "why"),
    [
        (b"late", "its requests arrived after its deadline by Redis's clock"),
        (b"join", "its clock is being set, or its keys are being deleted"),
        (b"stale", "other processes keep changing the same task"),
        (b"templates", "templates that it needs are being deleted"),
    ],
)
def test_a_call_that_is_told_the_same_to_its_end_says_so_and_does_not_spin(call, verdict, why):
    world = World(*itertools.repeat([verdict], 100))
    with pytest.raises(StoreUnavailable) as caught:
        call(world, whole=dict)
    assert str(caught.value) == f"cancel failed: {why}"
    assert not caught.value.may_have_run
    assert world.at[:50] == pytest.approx([0, *(AGAIN * count for count in range(49))])
    assert len(world.at) <= 52
    assert world.now == pytest.approx(TIMEOUT)


def test_verdicts_of_other_kinds_are_asked_again_at_once(call):
    world = World([b"join"], [b"stale"], [b"late"], DONE)
    assert call(world) == [b"done"]
    assert world.now == 0


def test_templates_that_are_missing_are_sent_along_by_the_same_call(call):
    world = World(lost(), [b"templates"], lost(), DONE)
    call(world, entries=["short"], whole=lambda: {"entries": ["long"]})
    sent = [arguments["entries"] for arguments in world.asked]
    assert sent == [["short"], ["short"], ["long"], ["long"]]
    assert len(values(world, "operation")) == 1


# Interruptions.


@pytest.mark.parametrize("before", [[], [lost()]])
def test_an_interrupted_call_ends_at_once(call, before):
    world = World(*before, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        call(world, pauses=[1])
    assert world.now == len(before)
    assert len(world.asked) == len(before) + 1


# Redis's clock.


seconds = st.floats(0, 100, allow_nan=False)
exchanges = st.lists(st.tuples(seconds, seconds, seconds), min_size=1, max_size=8)


@given(st.floats(-1, 1), exchanges, seconds)
def test_redis_s_time_is_never_ahead(drift, exchanges, later):
    """For any duration of a request and its reply, and any permitted rate of Redis's clock."""
    known, now = RedisTime(), 0.0

    def redis_us():
        return int((REDIS_S + now * (1 + drift * DRIFT)) * 1_000_000)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "monotonic", lambda: now)
        for pause, there, back in exchanges:
            now += pause + there
            told = redis_us()
            now += back
            known.learn(told)
            assert known.at(now) == told
        learned = now
        now += later
        # Redis's time has a resolution of a microsecond.
        assert known.at(now) <= redis_us() + 1
        assert redis_us() - known.at(now) <= (back + 2 * DRIFT * (now - learned)) * 1.1e6 + 2


def test_the_time_of_redis_is_not_known_before_anything_was_read():
    assert RedisTime().at(7.0) is None


def test_threads_share_what_is_known_of_the_time_of_redis():
    """A thread that is delayed between reading a reply and noting it sets the clock no later."""
    known, ahead, over = RedisTime(), [], threading.Event()
    known.learn(int(time.monotonic() * 1e6))

    def learn():
        while not over.is_set():
            known.learn(int(time.monotonic() * 1e6))

    threads = [threading.Thread(target=learn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20_000):
        told = known.at(time.monotonic())
        if told > time.monotonic() * 1e6:
            ahead.append(told)
    over.set()
    for thread in threads:
        thread.join()
    assert ahead == []
