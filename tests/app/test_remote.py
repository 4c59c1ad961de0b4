"""Celery's remote control: `inspect`, and the command `delayq`."""

import json
import logging
import subprocess
import sys
from types import SimpleNamespace

import pytest
from celery.app.control import Inspect
from celery.worker import state as worker_state
from celery.worker.control import Panel, query_task, scheduled
from celery.worker.request import Request

from celery_delayq import __version__
from celery_delayq.contrib.control import (
    panel,  # noqa: F401 - registers the command
    remote,
)
from celery_delayq.core.clock import from_ms
from tests.app.support import FAR, LONG_AGO

pytestmark = pytest.mark.libraries


# A worker's `inspect` commands show the store's tasks, in the form of Celery's own.


SECRETS = "(***)"


@pytest.fixture(params=["scheduled", "dump_schedule"])
def shown(request, monkeypatch, app):
    """The reply of a worker that holds so many tasks itself."""
    monkeypatch.setitem(Panel.data, request.param, scheduled)
    remote.in_worker(None)

    def ask(*its_own):
        queue = [SimpleNamespace(entry=SimpleNamespace(args=[one]), priority=6) for one in its_own]
        timer = SimpleNamespace(schedule=SimpleNamespace(queue=queue))
        consumer = SimpleNamespace(timer=timer)
        return Panel.data[request.param](
            SimpleNamespace(app=app, consumer=consumer, hostname="w@here")
        )

    return ask


@pytest.fixture
def held_by_celery(make_app, url, add, redis):
    """A task with an `eta`, as a worker holds it."""
    plain = make_app(url)
    plain.send_task("add", (1, 2), {"z": 3}, task_id="own", countdown=60, priority=3)
    message = json.loads(redis.rpop("celery\x06\x163"))
    delivered = SimpleNamespace(
        headers=message["headers"],
        properties=message["properties"],
        delivery_info=message["properties"]["delivery_info"],
        body=((1, 2), {"z": 3}, {}),
    )
    return Request(
        delivered,
        app=add.app,
        task=add,
        hostname="w@here",
        body=delivered.body,
        headers=message["headers"],
        decoded=True,
    )


def test_waiting_tasks_follow_those_that_the_worker_holds_in_the_same_form(
    app, shown, held_by_celery
):
    options = {"task_id": "held", "priority": 3, "delayq_at": FAR}
    app.send_task("add", (1, 2), {"z": 3}, **options)

    own, held = shown(held_by_celery)

    assert own["eta"] != held["eta"] == from_ms(FAR * 1000).isoformat()
    assert (own["request"]["id"], held["request"]["id"]) == ("own", "held")
    for one in (own, held):
        del one["eta"], one["request"]["id"]
    # A worker shows them like this if the request says to hide the arguments.
    safe = held_by_celery.info(safe=True)
    own["request"].update(args=safe["args"], kwargs=safe["kwargs"])
    assert held == own


def test_the_next_ones_are_shown_and_no_more_than_fit_an_answer(app, shown, limits):
    limits(inspect_shown=2)
    for days in (3, 1, 2):
        app.send_task("add", task_id=f"in {days}", delayq_at=FAR + days)

    assert [one["request"]["id"] for one in shown()] == ["in 1", "in 2"]


def test_large_messages_end_an_answer_early(app, shown, limits):
    limits(inspect_bytes=10_000)
    for number in range(5):
        app.send_task("add", ("x" * 4_000,), delayq_at=FAR + number)

    assert len(shown()) == 2


def test_arguments_that_are_hidden_from_logs_are_hidden(app, shown):
    app.send_task("add", ("password",), argsrepr=SECRETS, delayq_at=FAR)

    [one] = shown()

    assert one["request"]["args"] == SECRETS
    assert "password" not in json.dumps(one)


def test_an_unreadable_task_is_shown_by_its_id_and_time(app, shown, redis):
    app.send_task("add", task_id="good", delayq_at=FAR)
    app.send_task("add", task_id="bad", delayq_at=LONG_AGO)
    record = redis.hget("{delayq:0}:records", "bad")
    redis.hset("{delayq:0}:records", "bad", record.replace(b'"properties"', b'"proper?ies"'))

    bad, good = shown()

    assert (bad["request"]["id"], good["request"]["id"]) == ("bad", "good")
    assert bad["eta"] == from_ms(LONG_AGO * 1000).isoformat()
    assert good["request"]["name"] == "add"


def test_a_store_that_cannot_be_read_hides_nothing_of_the_worker(
    app, shown, held_by_celery, redis, caplog
):
    redis.set("{delayq:0}:due", "no sorted set")

    with caplog.at_level(logging.WARNING, remote.__name__):
        [own] = shown(held_by_celery)

    assert own["request"]["id"] == "own"
    assert "tasks waiting in the store are not shown: read failed" in caplog.text


def test_an_app_without_delayq_shows_what_it_holds(make_app, monkeypatch):
    monkeypatch.setitem(Panel.data, "scheduled", scheduled)
    remote.in_worker(None)
    consumer = SimpleNamespace(timer=SimpleNamespace(schedule=SimpleNamespace(queue=[])))

    state = SimpleNamespace(app=make_app(), consumer=consumer, hostname="w@here")
    assert Panel.data["scheduled"](state) == []


@pytest.fixture
def queried(monkeypatch, app):
    """The reply of a worker to a query for tasks by their ids."""
    monkeypatch.setitem(Panel.data, "query_task", query_task)
    remote.in_worker(None)
    return lambda ids: Panel.data["query_task"](
        SimpleNamespace(app=app, hostname="w@here"), ids=ids
    )


@pytest.fixture
def of_the_worker(held_by_celery, monkeypatch):
    monkeypatch.setitem(worker_state.requests, "own", held_by_celery)
    return held_by_celery


def test_a_task_that_is_asked_for_by_its_id_is_shown_where_it_waits(app, queried, of_the_worker):
    app.send_task("add", (1, 2), {"z": 3}, task_id="held", priority=3, delayq_at=FAR)

    answer = queried(["own", "held", "nobody"])

    assert answer.keys() == {"own", "held"}
    state, shown = answer["held"]
    safe = of_the_worker.info(safe=True)
    assert (state, shown) == ("scheduled", {**safe, "id": "held"})
    assert answer["own"] == ("ready", of_the_worker.info())


def test_a_single_paused_task_is_shown_too(app, delayq, queried, redis):
    app.send_task("add", task_id="held", delayq_at=LONG_AGO)
    delayq.pause(all=True)
    delayq.hand_over()

    assert queried("held")["held"][0] == "paused"


def test_a_worker_that_holds_a_task_itself_says_how_it_stands_there(app, queried, of_the_worker):
    app.send_task("add", task_id="own", delayq_at=FAR)

    assert queried(["own"]) == {"own": ("ready", of_the_worker.info())}


@pytest.mark.parametrize("task_id", ["x" * 600, 5, None, ["a"]])
def test_an_id_that_no_task_can_have_is_unknown(app, queried, task_id):
    app.send_task("add", task_id="held", delayq_at=FAR)

    assert queried(["held", *([] if isinstance(task_id, list) else [task_id])]).keys() == {"held"}


def test_a_store_that_cannot_be_read_does_not_hide_the_worker_s_own_tasks(
    app, queried, of_the_worker, redis, caplog
):
    redis.set("{delayq:0}:records", "no hash")

    with caplog.at_level(logging.WARNING, remote.__name__):
        answer = queried(["a", "own", "b"])

    assert answer.keys() == {"own"}
    assert caplog.text.count("tasks waiting in the store are not shown: ") == 1


# The remote command `delayq`: a worker's replies, and the messages of `app.control`.


@pytest.fixture
def ask(app):
    """Ask a worker's panel as a message does."""
    state = SimpleNamespace(app=app, hostname="w@here")
    return lambda command, **arguments: Panel.data[command](state, **arguments)


def test_a_worker_tells_how_its_store_stands(app, ask):
    app.delayq.pause(queue="mail")
    app.send_task("t", delayq_at=FAR)

    told = ask("delayq")

    facts = app.delayq.status(queues=False).facts()
    assert json.loads(json.dumps(told)) == told == {**facts, "version": __version__}
    assert "queues" not in told  # the slowest part


def test_a_store_that_refuses_is_answered_with_a_sentence(app, ask, redis):
    redis.set("{delayq:0}:paused", "no hash")
    assert " failed: " in ask("delayq")["error"]


def test_an_app_without_delayq_is_answered_with_a_sentence(make_app):
    told = Panel.data["delayq"](SimpleNamespace(app=make_app(), hostname="w@here"))
    assert told == {"error": "the app 'tests' has no DelayQ; make one with DelayQ(app)"}


# The app's side.


@pytest.fixture
def sent(app, monkeypatch):
    """The messages of `app.control` to workers."""
    sent = []
    monkeypatch.setattr(
        type(app.control).__mro__[0],
        "broadcast",
        lambda _, command, **options: sent.append((command, options)) or "answered",
        raising=False,
    )
    return sent


def test_inspect_has_the_question_and_all_of_celery_s_own(app, sent, monkeypatch):
    inspect = app.control.inspect(destination=["w@here"], timeout=5)
    monkeypatch.setattr(Inspect, "_prepare", lambda _, reply: reply)
    assert inspect.delayq() == "answered"
    [(command, options)] = sent
    assert (command, options["arguments"]) == ("delayq", {})
    assert (options["destination"], options["timeout"]) == (["w@here"], 5)
    assert inspect.ping() == "answered"
    assert type(inspect).__name__ == "Inspect"
    assert app.control.inspect is app.control.inspect


# Workers that know the command.


def test_only_workers_and_the_command_line_load_what_they_need():
    code = """
import sys, celery_delayq
from celery import Celery
app = Celery("shop", broker="memory://")
celery_delayq.DelayQ(app)
app.control.inspect
assert "celery.worker.control" not in sys.modules
import celery.bin.celery
from celery.worker.control import Panel
kinds = {name: one.type for name, one in Panel.meta.items() if "delayq" in name}
print(sorted(kinds.items()))
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    known = [("delayq", "inspect")]
    assert ran.stdout == f"{known}\n", ran.stderr
