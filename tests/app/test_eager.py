"""`task_always_eager`: Celery runs the task, Redis stays empty; the result has the usual API."""

import copy
import pickle
from datetime import datetime, timedelta, timezone

import pytest
from celery import chord, group
from celery.result import EagerResult, GroupResult

from celery_delayq import InvalidDueTime, Outcome, ScheduledResult
from celery_delayq.errors import InvalidOption

pytestmark = pytest.mark.libraries


@pytest.fixture
def eager(delayq_app, url):
    return delayq_app(url, task_always_eager=True)


@pytest.fixture
def ran(eager):
    """A task that notes its arguments."""
    seen = []

    @eager.task(name="note")
    def note(x, y=0):
        seen.append((x, y))
        return x + y

    note.seen = seen
    return note


SCHEDULED = [
    lambda task: task.delay_until(4_000_000_000, 1, y=2),
    lambda task: task.delay_for(3600, 1, y=2),
    lambda task: task.s(1, y=2).delay_for(3600),
    lambda task: task.s(1, y=2).set(queue="mail", expires=60).delay_until("2100-01-01"),
    lambda task: task.app.delayq.schedule(task.s(1, y=2), after=3600),
]
CANVASES = {
    "task": lambda task: task.s(1),
    "chain": lambda task: task.s(1) | task.s(5),
    "chord": lambda task: chord([task.s(1), task.s(2)], task.si(3)),
    "group": lambda task: group(task.s(1), task.s(2)),
}


@pytest.mark.parametrize(
    "call", [*SCHEDULED, lambda task: task.apply_async((1,), {"y": 2}, delayq_after=3600)]
)
def test_a_task_runs_at_the_call_and_its_result_is_celery_s(ran, redis, call):
    result = call(ran)

    assert isinstance(result, EagerResult)
    assert result.get() == 3
    assert ran.seen == [(1, 2)]
    assert redis.keys() == []


@pytest.mark.parametrize("call", SCHEDULED)
def test_its_result_is_a_scheduled_one_too(ran, call):
    result = call(ran)

    assert isinstance(result, ScheduledResult)
    assert (result.state, result.status) == ("SUCCESS", "SUCCESS")
    assert result.due > datetime.now(timezone.utc)


@pytest.mark.parametrize("what", CANVASES)
def test_a_canvas_s_result_has_run_and_cannot_be_cancelled(ran, redis, what):
    result = CANVASES[what](ran).delay_until("2100-01-01T12:00Z")

    assert isinstance(result, ScheduledResult)
    assert isinstance(result, GroupResult if what == "group" else EagerResult)
    assert result.state == "SUCCESS"
    assert result.due == datetime(2100, 1, 1, 12, tzinfo=timezone.utc)
    assert result.cancel() is Outcome.HANDED_OVER
    assert result.cancel(revoke=True) is Outcome.HANDED_OVER
    assert result.reschedule(after=60) is Outcome.HANDED_OVER
    assert result.reschedule("2110-01-01") is Outcome.HANDED_OVER
    assert result.reschedule(by=timedelta(days=-1)) is Outcome.HANDED_OVER
    assert (result.state, result.due.year) == ("SUCCESS", 2100)
    assert result.get()
    assert redis.keys() == []


def test_the_due_time_from_now_counts_from_the_call(ran):
    before = datetime.now(timezone.utc)
    result = ran.delay_for(timedelta(hours=1), 1)

    assert timedelta() <= result.due - before - timedelta(hours=1) < timedelta(minutes=1)


def test_a_naive_due_time_is_read_in_the_app_s_time_zone(delayq_app, url):
    app = delayq_app(url, task_always_eager=True, timezone="Europe/Berlin")

    @app.task(name="t")
    def task():
        pass

    result = task.delay_until(datetime(2100, 1, 1, 12))  # noqa: DTZ001

    assert result.due == datetime(2100, 1, 1, 11, tzinfo=timezone.utc)


@pytest.mark.parametrize("what", CANVASES)
def test_rescheduling_what_has_run_refuses_a_wrong_time_all_the_same(ran, what):
    result = CANVASES[what](ran).delay_for(60)

    with pytest.raises(InvalidDueTime):
        result.reschedule("soon")
    with pytest.raises(InvalidOption):
        result.reschedule()
    with pytest.raises(InvalidOption):
        result.reschedule(after=60, by=60)


@pytest.mark.parametrize("what", CANVASES)
def test_a_pickled_result_is_celery_s_own(ran, what):
    result = CANVASES[what](ran).delay_for(60)

    read = pickle.loads(pickle.dumps(result))

    assert type(read) is (GroupResult if what == "group" else EagerResult)
    assert read.id == result.id
    assert read.get() == result.get()


def test_a_copy_has_the_same_face(ran):
    result = ran.delay_for(60, 1)

    copied = copy.copy(result)

    assert isinstance(copied, ScheduledResult)
    assert (copied.id, copied.due, copied.get()) == (result.id, result.due, 1)
    assert copied.cancel() is Outcome.HANDED_OVER


def test_a_wrong_time_is_refused_all_the_same(ran):
    with pytest.raises(InvalidDueTime):
        ran.delay_for("soon", 1)
    assert ran.seen == []


def test_wrong_arguments_are_refused_all_the_same(ran):
    with pytest.raises(TypeError):
        ran.delay_for(60)
    assert ran.seen == []


def test_an_error_of_the_task_is_in_the_result(eager, redis):
    @eager.task(name="fail")
    def fail():
        raise KeyError("x")

    result = fail.delay_for(60)

    assert result.state == "FAILURE"
    assert isinstance(result.result, KeyError)
    with pytest.raises(KeyError):
        result.get()
    assert result.cancel() is Outcome.HANDED_OVER
    assert redis.keys() == []


def test_an_error_of_one_task_is_the_state_of_its_group(eager, ran):
    @eager.task(name="fail")
    def fail():
        raise KeyError("x")

    assert group(ran.s(1), fail.s()).delay_for(60).state == "FAILURE"


def test_a_call_returns_the_value_of_the_user_s_own_apply_async(eager):
    class Own(eager.Task):
        def apply_async(self, *args, **options):
            return "mine"

    @eager.task(name="own", base=Own)
    def own():
        pass

    assert own.delay_for(60) == "mine"


def test_errors_are_raised_where_the_app_wants_them(delayq_app, url):
    app = delayq_app(url, task_always_eager=True, task_eager_propagates=True)

    @app.task(name="fail")
    def fail():
        raise KeyError("x")

    with pytest.raises(KeyError):
        fail.delay_for(60)


def test_a_group_runs_at_the_call(ran, redis):
    result = group(ran.s(1), ran.s(2)).delay_for(3600)

    assert result.get() == [1, 2]
    assert redis.keys() == []


def test_a_chain_runs_at_the_call(ran, redis):
    result = (ran.s(1) | ran.s(5)).delay_for(3600)

    assert result.get() == 6
    assert redis.keys() == []


def test_captured_times_do_not_matter_when_eager(delayq_app, url, redis):
    app = delayq_app(url, task_always_eager=True, delayq_capture_eta=True)

    @app.task(name="t")
    def task(x):
        return x

    assert task.apply_async((1,), countdown=3600).get() == 1
    assert redis.keys() == []
