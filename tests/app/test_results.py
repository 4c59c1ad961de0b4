"""Celery's results of scheduled tasks: their class, their state, and what the store knows."""

import copy
import itertools
import logging
import pickle

import pytest
from celery import Celery, chain, chord, group, states
from celery.exceptions import TimeoutError as NoResultYet
from celery.result import AsyncResult, GroupResult, result_from_tuple

from celery_delayq import DelayQ, Item, ScheduledResult, State
from celery_delayq.core.integration.results import scheduled, word_of
from celery_delayq.core.scheduling import writing
from celery_delayq.errors import AlreadyScheduled, StoreUnavailable
from tests.app.conftest import app_with_results as app
from tests.app.support import FAR, LONG_AGO
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE

__all__ = ["app"]

pytestmark = pytest.mark.libraries


def stored(app, task_id, state):
    """A result whose task ended in this way."""
    app.backend.store_result(task_id, 1 if state == "SUCCESS" else ValueError(), state)
    return app.AsyncResult(task_id)


def test_a_group_is_pending_until_its_tasks_have_ended(app, add, delayq):
    result = group(add.s(1), add.s(2)).delay_until(LONG_AGO)
    delayq.hand_over()
    assert result.state == "PENDING"

    for ended, state in zip(result.results, ("PENDING", "SUCCESS"), strict=True):
        app.backend.store_result(ended.id, 1, "SUCCESS")
        assert result.state == state


@pytest.mark.parametrize("state", ["FAILURE", "REVOKED"])
def test_a_group_is_what_ended_badly_in_it(app, delayq, state):
    parts = [stored(app, "a", "SUCCESS"), stored(app, "b", state), app.AsyncResult("c")]

    assert scheduled(GroupResult("g", parts), delayq.services, 0).state == state


def test_a_group_of_groups_is_what_all_of_their_tasks_are(app, delayq):
    inner = GroupResult("i", [stored(app, "a", "SUCCESS")])
    result = scheduled(GroupResult("g", [inner, stored(app, "b", "SUCCESS")]), delayq.services, 0)
    assert result.state == "SUCCESS"

    inner.results.append(app.AsyncResult("c"))
    assert result.state == "PENDING"


# `app.AsyncResult(id)` and `delayq.result(id)` know what the store holds.


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
    assert first.ignored is delayq.result(first).ignored is ignore
    assert first.state == "SCHEDULED"


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


# An id that is used again has no past: neither in the result backend nor in this process.


_numbers = itertools.count(1)

ENDS = {
    "revoked": lambda backend, one: backend.mark_as_revoked(one, "cancelled"),
    "success": lambda backend, one: backend.mark_as_done(one, "old"),
    "failure": lambda backend, one: backend.mark_as_failure(one, KeyError("old")),
    "started": lambda backend, one: backend.store_result(one, None, states.STARTED),
}

WAYS = {
    "schedule": lambda add, one: add.app.delayq.schedule(add.s(1).set(task_id=one), at=FAR),
    "apply_async": lambda add, one: add.apply_async((1,), delayq_at=FAR, task_id=one),
    "send_task": lambda add, one: add.app.send_task("add", (1,), delayq_at=FAR, task_id=one),
    "bulk": lambda add, one: add.app.delayq.schedule_many(add, [Item((1,), task_id=one)], at=FAR),
}


@pytest.fixture
def used_id():
    return f"order-{next(_numbers)}"


def state(app, used_id):
    return app.backend.get_task_meta(used_id, cache=False)["status"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", ENDS)
def test_the_old_state_of_an_id_is_gone_before_the_new_task_waits(app, add, used_id, way, end):
    ENDS[end](app.backend, used_id)
    assert app.AsyncResult(used_id).state != states.PENDING  # and this process has it cached
    WAYS[way](add, used_id)
    assert state(app, used_id) == states.PENDING
    assert app.backend.get_state(used_id) == states.PENDING


def test_a_get_does_not_read_a_message_of_the_cancelled_task(app, delayq, add, used_id):
    """This process is subscribed to the id, and the message of its REVOKED has arrived."""
    first = delayq.schedule(add.s(1).set(task_id=used_id), at=FAR)
    assert first.cancel()
    second = delayq.schedule(add.s(1).set(task_id=used_id), at=FAR)
    with pytest.raises(NoResultYet):
        second.get(timeout=0.01)
    app.backend.mark_as_done(used_id, "new")
    assert second.get(timeout=30) == "new"


def test_a_signature_that_keeps_its_id_is_scheduled_anew(app, delayq, add):
    signature = add.s(1)
    signature.freeze()
    delayq.schedule(signature, at=FAR).cancel()
    second = delayq.schedule(signature, at=FAR)
    assert state(app, second.id) == states.PENDING


def test_the_parts_of_a_canvas_have_no_past_either(app, delayq, add):
    canvas = group(add.s(1), add.s(2))
    ids = [one.id for one in canvas.freeze()]
    assert delayq.schedule(canvas, at=FAR).cancel()
    assert {state(app, one) for one in ids} == {states.REVOKED}
    delayq.schedule(canvas, at=FAR)
    assert {state(app, one) for one in ids} == {states.PENDING}


@pytest.mark.parametrize("way", ["apply_async", "bulk"])
def test_a_call_that_is_refused_leaves_the_old_result(app, delayq, add, used_id, way):
    app.backend.mark_as_done(used_id, "old")
    delayq.schedule(add.s(1), at=FAR, key="k")
    if way == "bulk":
        delayq.schedule_many(
            add, [Item((1,), task_id="x"), Item((2,), task_id=used_id, key="k")], at=FAR
        )
    else:
        with pytest.raises(AlreadyScheduled):
            add.apply_async((1,), delayq_at=FAR, task_id=used_id, delayq_key="k")
    assert app.AsyncResult(used_id).get(timeout=30) == "old"


@pytest.mark.parametrize("way", WAYS)
def test_a_call_that_the_store_does_not_take_leaves_the_old_result(app, add, used_id, way):
    app.backend.mark_as_done(used_id, "old")
    app.conf.delayq_url = f"redis://127.0.0.1:{free_port()}/0"
    app.conf.task_publish_retry = False
    with pytest.raises(StoreUnavailable):
        WAYS[way](add, used_id)
    assert app.AsyncResult(used_id).get(timeout=30) == "old"


@pytest.fixture
def unanswered(app, used_id, swallowing, passing):
    """The store takes the call with this id, and no answer comes back."""
    proxy = swallowing(used_id.encode(), times=99)
    app.conf.delayq_url = f"redis://127.0.0.1:{proxy.port}/0"
    app.conf.update(delayq_timeout=PATIENCE, task_publish_retry=False)
    return passing(proxy)


@pytest.mark.parametrize("way", WAYS)
def test_a_call_that_may_have_been_taken_leaves_no_old_result(app, add, used_id, way, unanswered):
    app.backend.mark_as_done(used_id, "old")
    with unanswered, pytest.raises(StoreUnavailable) as caught:
        WAYS[way](add, used_id)
    assert caught.value.may_have_run
    assert state(app, used_id) == states.PENDING


def test_an_id_of_celery_s_own_making_costs_the_backend_nothing(app, add, monkeypatch):
    monkeypatch.setattr(app.backend, "get_task_meta", lambda *_, **__: pytest.fail("asked"))
    assert add.delay_until(FAR, 1).id
    assert add.apply_async((1,), delayq_at=FAR).id
    add.apply_async((1,), delayq_at=FAR, task_id="mine", ignore_result=True)


def test_a_backend_that_fails_does_not_fail_the_call_and_is_left_alone(app, add, monkeypatch):
    asked = []

    def fail(used_id, **_):
        asked.append(used_id)
        raise ConnectionError("away")

    monkeypatch.setattr(app.backend, "get_task_meta", fail)
    for used_id in "abc":
        assert add.apply_async((1,), delayq_at=FAR, task_id=used_id).id == used_id
    assert asked == ["a"]
    app.delayq.services.backend_rests_until -= writing.RESTS
    assert add.apply_async((1,), delayq_at=FAR, task_id="d").id == "d"
    assert asked == ["a", "d"]


# A REVOKED that is on its way.


@pytest.fixture
def held_up(app, monkeypatch):
    """REVOKED is stored only once the calls in this list have been made."""
    plain, run = app.backend.mark_as_revoked, []

    def late(*args, **options):
        for one in [*run]:
            one()
        plain(*args, **options)

    monkeypatch.setattr(app.backend, "mark_as_revoked", late)
    return run


def delivered(app, used_id):
    app.delayq.schedule(app.tasks["add"].s(2).set(task_id=used_id), after=0)
    assert app.delayq.hand_over() == 1
    app.backend.mark_as_done(used_id, "new")


def scheduled_anew(app, used_id):
    return app.delayq.schedule(app.tasks["add"].s(2).set(task_id=used_id), at=FAR)


# A caller's use of the id while REVOKED is on its way, and its state after that.
MEANWHILE = {
    "scheduled": (scheduled_anew, states.PENDING),
    "delivered": (delivered, states.SUCCESS),
    "cancelled again": (lambda *it: scheduled_anew(*it).cancel(), states.REVOKED),
}


@pytest.mark.parametrize("way", MEANWHILE)
def test_a_revoked_that_lands_after_the_id_was_used_again_is_taken_back(
    app, add, used_id, held_up, way
):
    again, end = MEANWHILE[way]

    def do():
        held_up.clear()
        again(app, used_id)

    first = app.delayq.schedule(add.s(1).set(task_id=used_id), at=FAR)
    held_up.append(do)
    assert first.cancel()
    assert state(app, used_id) == end
    if again is scheduled_anew:
        assert app.delayq.cancel(used_id)
        assert state(app, used_id) == states.REVOKED
