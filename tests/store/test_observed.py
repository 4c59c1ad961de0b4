"""Measurements of a store in use: round trips, Redis's clock, a task's size in memory."""

import pytest

from celery_delayq.contrib.care.doctor import TRIPS, WEIGHED, task_bytes, trips
from celery_delayq.core import clock
from celery_delayq.core.servers.connection import Connection
from celery_delayq.core.servers.endpoint import Endpoint
from tests.store.support import FAR_MS


@pytest.fixture
def connection(redis_server, redis_url):
    made = Connection(Endpoint(path=redis_server.socket))
    yield made
    made.close()


# Round trips, and the clock.


def test_the_middle_one_and_the_worst_are_told(monkeypatch):
    now, took = [0.0], iter([*range(1, 11), *range(20, 10, -1)])
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])

    class Link:
        def execute(self, _step, _command):
            now[0] += next(took) / 1000
            return [b"1", b"0"]

    seen = trips(Link())

    assert seen.median_ms == pytest.approx(11)
    assert seen.worst_ms == pytest.approx(20)


def test_each_trip_counts(redis_server, connection):
    calls = redis_server.client().info("commandstats").get("cmdstat_time", {}).get("calls", 0)
    trips(connection)
    assert redis_server.client().info("commandstats")["cmdstat_time"]["calls"] == calls + TRIPS


@pytest.mark.parametrize("before", [0, 1])
def test_the_clock_is_known_as_well_as_the_best_trips_tell(monkeypatch, before):
    """A quick way there shows the least that the clock may be ahead; a quick way back, the most."""
    now = [1_000_000.0]
    monkeypatch.setattr("time.time", lambda: now[0])

    class Link:
        asked = before

        def execute(self, _step, _command):
            self.asked += 1
            now[0] += self.asked % 2
            told = round(now[0] + 5)
            now[0] += (self.asked + 1) % 2
            return [b"%d" % told, b"0"]

    assert trips(Link()).ahead == (5.0, 5.0)


# A task's size in memory.


def fill(store, count):
    for number in range(count):
        store.schedule(f"task-{number:030}", FAR_MS, share=True)


def test_a_task_weighs_what_redis_says_of_all_keys(store, connection):
    fill(store, 100)
    keys = store.keys
    weighed = task_bytes(connection, [keys])
    each = {name: store.raw.memory_usage(keys[name], samples=0) or 0 for name in WEIGHED}
    assert weighed == pytest.approx(sum(each.values()) / 100, rel=0.05)
    assert weighed > each["records"] / 100


def test_too_few_tasks_tell_nothing(store, connection):
    fill(store, 99)
    assert task_bytes(connection, [store.keys]) is None


def test_without_the_right_to_weigh_nothing_is_told(redis_server, store):
    fill(store, 100)
    rule = ["reset", "on", ">p", "~*", "+@all", "-memory"]
    redis_server.client().execute_command("ACL", "SETUSER", "u", *rule)
    connection = Connection(Endpoint(path=redis_server.socket, username="u", password="p"))
    assert task_bytes(connection, [store.keys]) is None
    connection.close()
