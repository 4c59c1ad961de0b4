"""The store's gauges: the values in a scrape, which neither raises nor hangs."""

import json
import math
import os
import re
import threading
from concurrent.futures import Future
from dataclasses import replace
from datetime import timedelta

import pytest

from celery_delayq import __version__
from celery_delayq.contrib.metrics import Collector, watch
from celery_delayq.contrib.metrics import serving as collector_module
from celery_delayq.contrib.metrics.names import gauges
from celery_delayq.contrib.metrics.serving import samples_of
from celery_delayq.core import clock
from celery_delayq.core.store import Counts, Pause
from celery_delayq.operations.health import Sight, quick, seen
from celery_delayq.operations.queues import QueueCounts
from celery_delayq.operations.status import ScannerSeen, Status
from tests.app.support import redis_ms
from tests.metrics.support import Scrape
from tests.support.places import at
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.libraries

NOW_MS = 1_800_000_000_000
WITHOUT_A_STORE = {"build_info", "store_up"}
COUNTS = ("scheduled", "in_flight", "dead", "scanners", "overdue", "paused", "refused")


@pytest.fixture
def collector(delayq, registry):
    made = Collector(delayq)
    registry.register(made)
    return made


def status_of(queues=(), *, complete=True, **counts):
    numbers = {**dict.fromkeys(COUNTS, 0), "next_due_ms": None, "now_ms": NOW_MS, **counts}
    return Status(
        store="redis://h/0", prefix="delayq", path="direct", counts=Counts(**numbers), pauses=[],
        scanners=[ScannerSeen("a", clock.from_ms(NOW_MS))],
        queues=[QueueCounts(*one) for one in queues], queues_complete=complete,
    )  # fmt: skip


def test_a_scrape_has_the_waiting_and_overdue_tasks(app, redis, collector, scrape):
    now = math.floor(redis_ms(redis)) / 1000  # a whole millisecond, as the store counts
    for task_id, due in (("a", now + 3600), ("b", now + 7200), ("c", now - 60)):
        app.send_task("t", task_id=task_id, delayq_at=due)
    app.send_task("t", task_id="d", delayq_at=now - 120, queue="mail")

    found = scrape()

    assert (found["store_up"], found["waiting_tasks"], found["overdue_tasks"]) == (1, 4, 2)
    assert 120 <= found["oldest_overdue_seconds"] < 180
    assert -180 < found["next_due_seconds"] <= -120
    assert found.by_label("queue_waiting_tasks") == {"celery": 3, "mail": 1}
    assert found.by_label("queue_overdue_tasks") == {"celery": 1, "mail": 1}
    assert found["queues_complete"] == 1
    assert found.by_label("build_info") == {__version__: 1}


def test_a_scrape_tells_how_long_a_pause_and_the_return_take(app, delayq, redis, collector, scrape):
    assert scrape()["coming_back_seconds"] == 0
    delayq.pause(queue="mail")
    for _ in range(3):
        app.send_task("t", delayq_after=0, queue="mail")
    sent_ms = redis_ms(redis)
    eventually(lambda: redis_ms(redis) > sent_ms + 1)
    delayq.hand_over()

    assert scrape()["coming_back_seconds"] == 0
    assert 0 < scrape()["oldest_paused_seconds"] < PATIENCE
    paused = scrape().by_label("paused_seconds")
    assert [*paused] == ["queue mail"]
    assert 0 <= paused["queue mail"] < PATIENCE
    delayq.resume(queue="mail", rate=0.01)
    assert scrape()["coming_back_seconds"] == 300
    assert scrape()["oldest_paused_seconds"] == 0
    assert scrape().by_label("paused_seconds") == {}


def test_a_scrape_counts_tasks_in_flight_refused_paused_and_dead(app, delayq, collector, scrape):
    at(delayq, "parked", "paused", queue="mail")
    for place in ("dead", "refused", "leased"):
        at(delayq, place, place)
    app.send_task("t", delayq_after=3600, delayq_tags=["delayq:unknown"])

    found = scrape()

    names = ("in_flight_tasks", "refused_tasks", "paused_tasks", "dead_tasks", "unknown_tasks")
    assert [found[name] for name in names] == [1, 1, 1, 1, 1]


def test_a_scrape_counts_the_scanners_that_are_alive(delayq, collector, scrape):
    assert scrape()["scanners"] == 0
    scanner = delayq.scanner()
    scanner.start()
    try:
        scanner.wait_for_first_scan(PATIENCE)
        delayq.hand_over()  # this one leaves at once
        # Without CPU time for its heartbeat, it may look dead for a moment.
        eventually(lambda: scrape()["scanners"] == 1)
    finally:
        scanner.stop()


def test_an_empty_store_is_never_overdue_and_has_no_next_due_time(collector, scrape):
    found = scrape()

    assert found["oldest_overdue_seconds"] == 0
    assert found.names == {one.name for one in gauges()} - {
        "next_due_seconds",
        "paused_seconds",
        "scanner_age_seconds",
        "store_age_seconds",
        "queue_waiting_tasks",
        "queue_overdue_tasks",
    }


def test_the_hundred_largest_queues_have_labels_and_the_others_are_summed():
    queues = [(f"q{number}", number, 1) for number in range(1, 151)]
    told = samples_of(status_of(queues), 0)
    waiting, overdue = told["queue_waiting_tasks"], told["queue_overdue_tasks"]
    assert waiting.pop("other") == sum(range(1, 51))
    assert waiting == {f"q{number}": number for number in range(51, 151)}
    assert (len(overdue), overdue["other"], overdue["q51"]) == (101, 50, 1)


def test_an_incomplete_look_gives_no_values_by_queue():
    told = samples_of(status_of([("q", 9_000, 1)], complete=False, scheduled=12_000), 0)
    assert (told["queues_complete"], told["waiting_tasks"]) == ({"": 0}, {"": 12_000})
    assert told.keys().isdisjoint({"queue_waiting_tasks", "queue_overdue_tasks"})


def held_since(ms, *, resumed=False, left=0):
    """A pause of a queue with a task that is due since then."""
    since = clock.from_ms(ms)
    rate = 1.0 if resumed else None
    return Pause("mail", None, since, False, left, resumed, rate, held_since=since)


def noted(*, age=60_000, rows=9, drift=0, left=0, dry=0, error=""):
    """What the last reconcile of a tag noted."""
    found = {"rows": rows, "drift": drift, "left": left, "dry": dry, "error": error}
    return (("order", f"{NOW_MS - age} {json.dumps(found)}"),)


COMPARED = re.compile(r"celery_delayq_(\w+)(?: - celery_delayq_(\w+))?\) (==|>) (\d+)")


def fires(alert, told):
    """Whether its expression, as `alerts.yml` has it, holds for these gauges."""
    held = []
    known = {name: samples[""] for name, samples in told.items() if "" in samples}
    for gauge, minus, sign, bound in COMPARED.findall(alert.when):
        value = known.get(gauge, math.nan) - (known.get(minus, math.nan) if minus else 0)
        held.append(value == int(bound) if sign == "==" else value > int(bound))
    assert held, alert.when
    return any(held)


@pytest.mark.parametrize(
    ("wrong", "counts", "pauses"),
    [
        (None, {}, []),
        ("scanners", {"scanners": 0}, []),
        ("beginning", {"began_ms": NOW_MS - 1, "scanner_ms": NOW_MS - 2}, []),
        (None, {"began_ms": NOW_MS - 2, "scanner_ms": NOW_MS - 2}, []),
        ("overdue", {"oldest_overdue_ms": NOW_MS - 60_001}, []),
        (None, {"oldest_overdue_ms": NOW_MS - 60_000}, []),
        ("refused", {"refused": 1}, []),
        ("dead", {"dead": 1}, []),
        ("rules", {"rules": 1, "rule_look_ms": NOW_MS - 90_001}, []),
        ("rules", {"rules": 1, "troubled_rules": 1}, []),
        ("reconcile", {"reconciled": noted(drift=2, left=1)}, []),
        ("reconcile", {"reconciled": noted(drift=2, left=2, dry=1)}, []),
        ("reconcile", {"reconciled": noted(error="KeyError")}, []),
        (None, {"reconciled": noted(drift=2)}, []),
        (None, {"reconciled": noted(drift=2, left=1, age=7 * 86_400_000)}, []),
        (None, {"reconciled": (("order", "another program's"),)}, []),
        ("pauses", {}, [held_since(NOW_MS - 600_001)]),
        (None, {}, [held_since(NOW_MS - 600_000)]),
        (None, {}, [held_since(NOW_MS - 600_001, resumed=True)]),
        ("pauses", {}, [held_since(NOW_MS, resumed=True, left=601)]),
    ],
)
def test_health_and_the_alert_of_a_check_say_the_same_of_a_store(delayq, wrong, counts, pauses):
    found = replace(status_of(**{"scanners": 1, "rule_look_ms": NOW_MS, **counts}), pauses=pauses)
    told = samples_of(found, 0)
    sight = Sight(delayq.services, found.counts, pauses)

    problems = {line.name for line in seen(sight) if line.is_problem}
    alarms = {check.name for check in quick() for alert in check.alerts if fires(alert, told)}

    assert problems == alarms == ({wrong} if wrong else set())


@pytest.mark.parametrize(
    ("look_ms", "late"), [(None, 0), (NOW_MS + 1, 0), (NOW_MS, 0), (NOW_MS - 91_000, 91)]
)
def test_rules_are_counted_with_those_in_trouble_and_how_late_they_are(look_ms, late):
    told = samples_of(status_of(rules=7, troubled_rules=2, rule_look_ms=look_ms), 0)
    names = ("rules", "troubled_rules", "rules_late_seconds")
    assert [told[name] for name in names] == [{"": 7}, {"": 2}, {"": late}]


def test_a_name_that_no_label_can_be_spoils_no_scrape(collector, monkeypatch, delayq, registry):
    queues = [("\ud800", 1, 0), ("", 2, 0), ('"\n\x1b[2J\r\x85', 3, 0), ("größe \\", 4, 0)]
    monkeypatch.setattr(collector_module, "status", lambda _: status_of(queues))

    assert Scrape.of(registry).by_label("queue_waiting_tasks") == {
        "\\ud800": 1,
        "unreadable": 2,
        '"\\n\\x1b[2J\\r\\x85': 3,
        "größe \\": 4,
    }


@pytest.mark.parametrize("seconds", [-3600, 90])
def test_a_clock_that_is_wrong_shows_the_difference(collector, scrape, monkeypatch, seconds):
    assert abs(scrape()["clock_difference_seconds"]) < PATIENCE
    here = clock.utc_now
    monkeypatch.setattr(clock, "utc_now", lambda: here() + timedelta(seconds=seconds))
    assert scrape()["clock_difference_seconds"] == pytest.approx(-seconds, abs=PATIENCE)


def test_registering_one_asks_nobody_and_one_registry_takes_one(delayq_app, registry, caplog):
    away = delayq_app("redis://127.0.0.1:1", delayq_timeout=0.1).delayq
    before = {*threading.enumerate()}  # one that reads for an earlier test may still be there
    registry.register(Collector(away))
    begun = {*threading.enumerate()} - before
    assert not any(thread.name == "delayq-scrape" for thread in begun)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(Collector(away))


def test_a_store_that_is_away_is_told_and_comes_back(delayq_app, start_redis, registry, scrape):
    server = start_redis()
    delayq = delayq_app(server.url()).delayq
    registry.register(Collector(delayq))
    watch(delayq, registry)
    assert scrape()["store_up"] == 1

    server.kill()
    gone = scrape()
    server.start()

    assert gone["store_up"] == 0
    assert gone.names & {one.name for one in gauges()} == WITHOUT_A_STORE
    assert gone["scheduled_total"] == 0
    eventually(lambda: scrape()["store_up"] == 1, message="the store is back")


def test_a_store_that_hangs_is_told_as_well(delayq_app, start_redis, registry, scrape):
    server = start_redis()
    registry.register(Collector(delayq_app(server.url(), delayq_timeout=0.5).delayq))
    eventually(lambda: scrape()["store_up"] == 1, message="it is read")
    server.pause()

    try:
        assert scrape()["store_up"] == 0
    finally:
        server.resume()


def test_a_reading_that_takes_long_is_waited_for_no_longer_than_a_call_and_is_not_doubled(
    delayq_app, url, registry, monkeypatch
):
    delayq = delayq_app(url, delayq_timeout=0.2).delayq
    registry.register(Collector(delayq))
    goes_on, readings = threading.Event(), []

    def slow(_):
        readings.append(threading.current_thread())
        goes_on.wait(60)
        return status_of()

    monkeypatch.setattr(collector_module, "status", slow)

    found = [Scrape.of(registry) for _ in range(3)]
    goes_on.set()
    readings[0].join()

    assert [one["store_up"] for one in found] == [0, 0, 0]
    assert len(readings) == 1
    eventually(lambda: Scrape.of(registry)["store_up"] == 1, message="it is read")


def test_settings_that_are_wrong_do_not_spoil_a_scrape(delayq_app, registry, caplog):
    registry.register(Collector(delayq_app("memory://").delayq))
    assert Scrape.of(registry).names == WITHOUT_A_STORE
    assert "metrics of the store could not be read" in caplog.text


def test_a_child_waits_for_no_reading_of_its_parent(collector, scrape):
    collector._reading = os.getpid() + 1, Future()
    assert scrape()["store_up"] == 1
