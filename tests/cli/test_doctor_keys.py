"""The doctor's line for unique keys whose tasks are lost."""

import pytest

from celery_delayq.contrib.care import doctor
from celery_delayq.core.servers.risks import OK, WARNING
from tests.app.support import FAR

RUNS = [(OK, "workers have the tasks of 1 held key", "")]


@pytest.fixture
def heard(monkeypatch):
    """The answers of workers; at first one that has no task."""
    told = {"w": {}}
    monkeypatch.setattr("celery.app.control.Inspect._request", lambda *_, **__: told)
    return told


@pytest.fixture
def held(app):
    """A delivered task that holds a key until it has finished, and its message in the queue."""
    result = app.delayq.schedule(app.signature("t"), after=0, key="k", unique_until="finished")
    app.delayq.hand_over()
    return result


def look(app):
    return [(line.level, line.found, line.advice) for line in doctor.held_keys(app.delayq.services)]


def test_a_task_that_was_purged_is_named_with_the_way_out(app, held, heard, redis):
    until = app.delayq.holder(key="k").until
    redis.delete("celery")

    found = (
        f"task {held.id} holds the key k until {until:%Y-%m-%d %H:%M} UTC, and neither a worker "
        "nor the broker has that task"
    )
    assert look(app) == [(WARNING, found, "if it does not run: celery -A proj delayq free k")]


def test_further_keys_are_counted_after_some(app, heard, redis, limits):
    limits(doctor_keys=1)
    for key in "abc":
        app.delayq.schedule(app.signature("t"), after=0, key=key, unique_until="finished")
    app.delayq.hand_over()
    redis.delete("celery")
    assert look(app)[1:] == [(WARNING, "so do 2 more tasks", "the same")]


@pytest.mark.parametrize(
    ("is_purged", "arrange", "lines"),
    [
        (False, lambda **_: None, []),
        (True, lambda redis, **_: redis.hset("unacked", "tag", "a message of no worker"), []),
        (True, lambda heard, task_id, **_: heard["w"].update({task_id: ["active", {}]}), RUNS),
        (True, lambda heard, **_: heard.clear(), []),
    ],
    ids=["its message waits", "its message comes again", "a worker has it", "a worker is silent"],
)
def test_a_key_whose_task_still_comes_or_runs_is_not_named(  # noqa: PLR0917
    app, held, heard, redis, is_purged, arrange, lines
):
    if is_purged:
        redis.delete("celery")
    arrange(redis=redis, heard=heard, task_id=held.id)
    assert look(app) == lines


@pytest.mark.usefixtures("held")
def test_a_key_whose_task_finishes_meanwhile_is_not_named(app, heard, redis, monkeypatch):
    redis.delete("celery")
    finishing = lambda *_, **__: app.delayq.free(key="k") and heard  # noqa: E731
    monkeypatch.setattr("celery.app.control.Inspect._request", finishing)
    assert look(app) == RUNS


def test_a_key_that_is_held_for_a_time_is_held_without_a_run(app, heard, redis):
    app.delayq.schedule(app.signature("t"), after=0, key="k", unique_for=3600)
    app.delayq.hand_over()
    redis.delete("celery")
    app.delayq.schedule(app.signature("t"), at=FAR, key="waits", unique_until="finished")
    assert look(app) == []


def test_on_rabbitmq_the_broker_tells_how_many_messages_it_has(
    delayq_app, url, rabbitmq_server, heard
):
    app = delayq_app(rabbitmq_server.url, delayq_url=url, task_default_queue="held-keys")
    app.delayq.schedule(app.signature("t"), after=0, key="k", unique_until="finished")
    app.delayq.hand_over()
    assert look(app) == []
    app.control.purge()
    assert [level for level, *_ in look(app)] == [WARNING]
