"""Counters and histograms: each event is counted once, by the process that it happens in."""

import subprocess
import sys

import pytest
from prometheus_client import CollectorRegistry

from celery_delayq.contrib.metrics import watch
from celery_delayq.contrib.metrics.names import COUNTED
from celery_delayq.errors import StoreUnavailable
from tests.app.support import FAR, LONG_AGO
from tests.metrics.support import Scrape
from tests.support.places import at
from tests.support.ports import free_port
from tests.support.shards import with_one_shard
from tests.support.waiting import PATIENCE, eventually


@pytest.fixture
def watched(delayq, registry):
    watch(delayq, registry)
    return delayq


def test_scheduling_is_counted_one_by_one_and_in_bulk(app, watched, scrape):
    task = app.signature("t")
    task.delay_until(FAR)
    watched.schedule_many(task, [((), {})] * 250, at=FAR)
    assert scrape()["scheduled_total"] == 251


def test_tasks_that_too_few_replicas_have_are_counted(app, watched, scrape):
    app.send_task("t", delayq_at=FAR)
    app.conf.delayq_wait_replicas = (1, 0.01)
    for _ in range(2):
        app.send_task("t", delayq_at=FAR)
    found = scrape()
    assert (found["scheduled_total"], found["unreplicated_total"]) == (3, 2)


@pytest.mark.parametrize(
    ("hook", "facts", "metric", "label", "counted"),
    [
        ("slots_omitted", (3, "held"), "rule_slots_omitted", "held", 3),
        ("slots_omitted", (2, "missed"), "rule_slots_omitted", "missed", 2),
        ("undone", (["a", "b"],), "undone", None, 2),
        ("restarted", ("scanner",), "scanner_restarts", None, 1),
        ("left", ("relay", [0.1, 0.2]), "handed_over", "relay", 2),
        ("refused", ("relay", 1), "refused", "relay", 1),
        ("uncertain", (1,), "uncertain", None, 1),
        ("reclaimed", (["a"],), "lease_recoveries", None, 1),
        ("broker_down", (), "broker_failures", None, 1),
    ],
)  # fmt: skip
def test_a_hook_s_facts_are_counted(watched, scrape, hook, facts, metric, label, counted):  # noqa: PLR0917
    getattr(watched.services.hooks, hook)(*facts)
    found = scrape()
    assert (
        found.by_label(f"{metric}_total")[label] if label else found[f"{metric}_total"]
    ) == counted


def test_a_task_that_the_store_does_not_take_is_counted_by_its_error(delayq_app, registry, scrape):
    app = delayq_app(f"redis://127.0.0.1:{free_port()}/0")
    watch(app.delayq, registry)
    with pytest.raises(StoreUnavailable):
        app.send_task("t", delayq_at=FAR, retry=False)
    assert scrape().by_label("schedule_failures_total") == {"StoreUnavailable": 1}


def test_each_answer_to_a_cancel_is_counted(app, watched, scrape):
    for task_id in ("a", "b", "c"):
        app.send_task("t", task_id=task_id, delayq_at=FAR)
    app.send_task("t", task_id="gone", delayq_at=LONG_AGO)
    watched.hand_over()

    watched.cancel("a")
    watched.cancel("a")
    watched.cancel("gone")
    watched.select(all=True).cancel()

    # "a" was cancelled before, so no data on it is left.
    assert scrape().by_label("cancelled_total") == {"done": 3, "not_found": 1, "handed_over": 1}


def test_replaced_tasks_are_counted_apart(app, watched, scrape):
    for _ in range(3):
        app.send_task("t", delayq_at=FAR, delayq_key="k", delayq_conflict="replace")
    assert scrape().by_label("cancelled_total") == {"replaced": 2}
    assert scrape()["scheduled_total"] == 3


def test_moves_and_edits_are_counted_by_what_came_of_them(app, watched, scrape):
    for task_id in ("a", "b"):
        app.send_task("t", task_id=task_id, delayq_at=FAR)

    watched.reschedule("a", by=60)
    watched.reschedule("a", FAR, only="later")
    watched.select(all=True).reschedule(by=60)
    watched.run_now("b")
    watched.edit("a", args=[1])
    watched.edit("c", args=[1])

    assert scrape().by_label("rescheduled_total") == {"done": 4, "unchanged": 1}
    assert scrape().by_label("edited_total") == {"done": 1, "not_found": 1}


def test_a_hand_over_is_counted_with_how_late_it_was(app, watched, scrape):
    for _ in range(3):
        app.send_task("t", delayq_at=LONG_AGO)
    app.send_task("t", delayq_at=LONG_AGO, delayq_late="skip", delayq_grace=5)

    watched.hand_over()

    found = scrape()
    assert found.by_label("handed_over_total") == {"direct": 3}
    assert found.by_label("handover_lateness_seconds_count") == {"direct": 3}
    # They were scheduled just now, so they are less late than their due time suggests.
    assert found.by_label("handover_lateness_seconds_sum")["direct"] < 3 * 60
    assert found["skipped_total"] == 1


def test_refusals_and_dead_tasks_are_counted(app, watched, scrape):
    at(watched, "dead", queue="celery")
    found = scrape()
    assert (found.by_label("refused_total"), found["dead_total"]) == ({"direct": 7}, 1)
    assert found.by_label("handed_over_total") == {}


@with_one_shard
def test_the_round_trip_of_each_script_is_measured(app, watched, scrape):
    app.send_task("t", delayq_at=FAR)
    watched.counts()
    watched.counts()
    found = scrape().by_label("script_duration_seconds_count")
    assert (found["schedule"], found["counts"]) == (1, 2)
    assert all(0 < took < 60 for took in scrape().by_label("script_duration_seconds_sum").values())


def test_every_counter_is_told_from_the_start(watched, scrape):
    found = scrape()
    for metric in COUNTED:
        ending = {"counter": "_total", "histogram": "_count"}[metric.kind]
        for value in metric.values or ([""] if not metric.label else []):
            labels = ((metric.label, value),) if value else ()
            assert found.samples[metric.name + ending, labels] == 0


def test_a_delayq_that_is_watched_twice_is_counted_once(app, watched, registry, scrape):
    watch(watched, registry)
    app.send_task("t", delayq_at=FAR)
    assert scrape()["scheduled_total"] == 1


def test_apps_that_share_a_registry_are_counted_together_and_others_apart(
    app, watched, delayq_app, url, registry
):
    other, apart = delayq_app(url, delayq_prefix="b"), delayq_app(url, delayq_prefix="c")
    watch(other.delayq, registry)
    elsewhere = CollectorRegistry()
    watch(apart.delayq, elsewhere)
    for one in (app, other, apart):
        one.send_task("t", delayq_at=FAR)

    assert [Scrape.of(one)["scheduled_total"] for one in (registry, elsewhere)] == [2, 1]


def test_a_scanner_that_runs_already_is_counted(delayq_app, url, registry, scrape):
    app = delayq_app(url, delayq_safety_interval=0.1)
    scanner = app.delayq.scanner()
    scanner.start()
    try:
        scanner.wait_for_first_scan(PATIENCE)
        watch(app.delayq, registry)
        app.send_task("t", delayq_at=LONG_AGO)
        eventually(lambda: scrape().by_label("handed_over_total") == {"direct": 1})
    finally:
        scanner.stop()


def test_a_failing_counter_cannot_spoil_a_step(app, watched, caplog, monkeypatch):
    monkeypatch.setattr("prometheus_client.Counter.inc", lambda *_: 1 / 0)
    app.send_task("t", task_id="a", delayq_at=FAR)
    assert watched.cancel("a")
    assert "a hook failed" in caplog.text


def test_nothing_of_prometheus_is_imported_before_it_is_asked_for():
    program = (
        "import sys; from celery import Celery; from celery_delayq import DelayQ;"
        "app = Celery(broker='redis://'); DelayQ(app);"
        "import celery_delayq.contrib.metrics, celery_delayq.contrib.metrics;"
        "import celery_delayq.operations.cli.operate;"
        "assert celery_delayq.contrib.metrics.beside_scanner(app) is None;"
        "print([name for name in sys.modules if name.startswith('prometheus')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_only_what_is_there_can_be_imported():
    import celery_delayq.contrib.metrics as room

    assert {name: getattr(room, name).__name__ for name in room.__all__} == {
        "Collector": "Collector",
        "watch": "watch",
    }
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = room.Nothing
