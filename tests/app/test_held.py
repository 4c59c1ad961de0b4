"""`app.AsyncResult(id)` and `delayq.result(id)` know what the store holds."""

import copy
import logging
import pickle

import pytest
from celery import Celery, chain, chord, group
from celery.result import AsyncResult, GroupResult, result_from_tuple

from celery_delayq import DelayQ, ScheduledResult, State
from celery_delayq.core.integration.results import word_of
from tests.app.conftest import app_with_results as app
from tests.app.support import FAR, LONG_AGO
from tests.support.ports import free_port

__all__ = ["app"]

pytestmark = pytest.mark.libraries


@pytest.fixture
def unasked(between):
    """Fail if the store is asked for a task."""
    yield
    assert set(between.asked) <= {"join", "schedule"}


class Own(AsyncResult):
    """An app's own class."""

    def ready(self):
        return "own"


class OwnApp(Celery):
    AsyncResult = Own


# The state of any result.


OF = {
    "app": lambda add, task_id: add.app.AsyncResult(task_id),
    "task": lambda add, task_id: add.AsyncResult(task_id),
    "signature": lambda add, task_id: add.s().AsyncResult(task_id),
    "tuple": lambda add, task_id: result_from_tuple(((task_id, None), None), add.app),
}


@pytest.mark.parametrize("of", OF.values(), ids=OF)
def test_the_state_of_a_waiting_task_is_scheduled_until_it_is_delivered(app, add, delayq, of):
    task_id = add.delay_until(LONG_AGO, 1).id
    result = of(add, task_id)
    assert (result.state, result.status) == ("SCHEDULED", "SCHEDULED")

    delayq.hand_over()
    assert (result.state, result.status) == ("PENDING", "PENDING")

    app.backend.store_result(task_id, 5, "SUCCESS")
    assert (result.state, result.get(timeout=30)) == ("SUCCESS", 5)


def test_the_state_of_a_plain_call_is_pending(add):
    assert add.delay(1).state == "PENDING"


def test_each_state_of_the_store_has_a_word():
    assert {state: word_of(state) for state in State} == {
        State.SCHEDULED: "SCHEDULED",
        State.PAUSED: "PAUSED",
        State.IN_FLIGHT: "SCHEDULED",
        State.DEAD: "DEAD",
    }


@pytest.mark.parametrize(
    ("word", "value"),
    [("STARTED", None), ("RETRY", ValueError("x")), ("REVOKED", ValueError("x")), ("SUCCESS", 5)],
)
def test_a_state_in_the_backend_stands_and_the_store_gets_no_request(
    app, add, unasked, word, value
):
    result = add.delay_until(FAR, 1)
    app.backend.store_result(result.id, value, word)
    assert app.AsyncResult(result.id).state == word


@pytest.mark.parametrize("way", ["ready", "successful", "failed"])
def test_whether_it_has_run_is_asked_of_the_backend_alone(app, add, unasked, way):
    expected = {"SUCCESS": way != "failed", "FAILURE": way != "successful"}
    for word, so in expected.items():
        result = app.AsyncResult(add.delay_until(FAR, 1).id)
        assert getattr(result, way)() is False
        app.backend.store_result(result.id, None if word == "SUCCESS" else ValueError("x"), word)
        assert getattr(result, way)() is so


def test_a_group_of_pending_results_does_not_ask_for_each(app, add, unasked):
    members = [add.delay(number) for number in range(3)]
    result = app.GroupResult("g", members)
    assert (result.ready(), result.completed_count()) == (False, 0)


@pytest.mark.parametrize("task_id", ["a", "a" * 10_000])
def test_a_task_is_pending_if_the_store_cannot_be_read(
    delayq_app, redis_server, redis, caplog, task_id
):
    away = f"redis://127.0.0.1:{free_port()}/0"
    app = delayq_app(redis_server.url(), redis_server.url(1), delayq_url=away)
    caplog.set_level(logging.DEBUG)

    assert app.AsyncResult(task_id).state == "PENDING"

    [line] = [one for one in caplog.records if one.name == "celery_delayq.core.integration.results"]
    assert line.levelno == logging.DEBUG
    assert "its state cannot be read from the store: " in line.getMessage()


def test_without_a_result_backend_the_state_is_known_while_it_waits(delayq_app, url):
    app = delayq_app(url)
    app.send_task("t", task_id="a", delayq_at=LONG_AGO)
    result = app.AsyncResult("a")
    assert result.state == "SCHEDULED"

    app.delayq.hand_over()

    with pytest.raises(Exception, match="DisabledBackend") as plain:
        _ = AsyncResult("a", app=app).state
    with pytest.raises(type(plain.value)):
        _ = result.state


# Apps and results that are copied, pickled, or of a custom class.


def test_the_results_of_a_pickled_app_know_it_too(app, add):
    task_id = add.delay_until(FAR, 1).id
    read = pickle.loads(pickle.dumps(app))
    assert read is not app
    assert read.AsyncResult(task_id).state == "SCHEDULED"
    read.delayq.close()


@pytest.mark.parametrize(
    "passed", [copy.copy, lambda result: pickle.loads(pickle.dumps(result))], ids=["copy", "pickle"]
)
def test_a_result_that_is_copied_or_pickled_knows_it_too(app, add, passed):
    app.set_current()
    result = app.AsyncResult(add.delay_until(FAR, 1).id)
    other = passed(result)
    assert (other.state, other) == ("SCHEDULED", result)


def test_a_result_reads_as_celery_s_where_there_is_no_delayq(app, make_app, redis_server):
    made = pickle.dumps(app.AsyncResult("a"))
    plain = make_app(redis_server.url(), redis_server.url(1))
    plain.set_current()
    assert type(pickle.loads(made)) is plain.AsyncResult
    assert pickle.loads(made).state == "PENDING"


@pytest.fixture
def own_app(redis_server, redis):
    app = OwnApp("own", broker=redis_server.url(), backend=redis_server.url(1), set_as_current=True)
    delayq = DelayQ(app)
    yield app
    delayq.close()


def test_a_result_class_of_the_app_s_own_stays_what_it_is(own_app):
    own_app.send_task("t", task_id="a", delayq_at=FAR)

    result = own_app.AsyncResult("a")

    assert isinstance(result, Own)
    assert (result.state, result.ready()) == ("SCHEDULED", "own")
    read = pickle.loads(pickle.dumps(result))
    assert (type(read), read.id) == (Own, "a")


@pytest.mark.parametrize("made_by", [str, lambda task_id: task_id], ids=["class", "function"])
def test_a_custom_asyncresult_that_is_no_class_of_results_stays_as_it_is(make_app, url, made_by):
    app = make_app(url)
    app.AsyncResult = made_by
    DelayQ(app)
    assert app.AsyncResult is made_by


# The result of a scheduled task.


@pytest.mark.parametrize("ignore", [False, True])
def test_the_result_of_a_task_that_ignores_results_says_so(app, add, delayq, ignore):
    first = add.apply_async((1,), ignore_result=ignore, delayq_at=FAR)
    assert delayq.result(first).ignored is ignore


CALLS = {
    "task": (lambda add: add.s(1), AsyncResult),
    "group of one": (lambda add: group([add.s(1)]), GroupResult),
    "group": (lambda add: group(add.s(number) for number in range(3)), GroupResult),
    "chain": (lambda add: chain(add.s(1), add.s(2)), AsyncResult),
    "chord": (lambda add: chord([add.s(1), add.s(2)], add.s(3)), AsyncResult),
}


@pytest.mark.parametrize(("call", "kind"), CALLS.values(), ids=CALLS)
def test_the_result_of_an_id_is_what_its_call_returned_and_both_are_celery_s_and_scheduled_ones(
    add, delayq, call, kind
):
    """A group's has its members; that of another canvas is its last task's."""
    first = delayq.schedule(call(add), at=FAR)

    result = delayq.result(first.id)

    for one in (first, result):
        assert isinstance(one, ScheduledResult)
        assert isinstance(one, kind)
        assert (one.state, one.status, one.due.timestamp()) == ("SCHEDULED", "SCHEDULED", FAR)
    assert result == first
    assert getattr(result, "results", None) == getattr(first, "results", None)
    assert result.cancel()


def test_the_result_of_a_message_that_cannot_be_read_is_the_task_s(delayq_app, url):
    app = delayq_app(url, task_serializer="pickle", accept_content=["json", "pickle"])

    @app.task(name="add")
    def add(x):
        return x

    first = app.delayq.schedule(group(add.s(1), add.s(2)), at=FAR)
    app.conf.accept_content = ["json"]

    result = app.delayq.result(first.id)

    assert (result.id, result.due) == (first.id, first.due)
    assert result.cancel()
