"""`task_always_eager`: Celery runs the task, Redis stays empty; the result has the usual API."""

import copy
import pickle
from datetime import datetime, timedelta, timezone

import pytest
from celery import chord, group
from celery.result import EagerResult, GroupResult

from celery_delayq import InvalidDueTime, Outcome, ScheduledResult
from celery_delayq.errors import InvalidOption
from tests.app.support import FAR, WAYS, noop

pytestmark = pytest.mark.libraries

DUE = datetime.fromtimestamp(FAR, timezone.utc)


@pytest.fixture
def eager(delayq_app, url):
    """Make an app with eager tasks."""
    return lambda **conf: delayq_app(url, task_always_eager=True, **conf)


@pytest.fixture
def app(eager):
    return eager()


@pytest.fixture
def ran(app):
    """A task that notes its arguments."""
    seen = []

    @app.task(name="note")
    def note(x, y=0):
        seen.append((x, y))
        return x + y

    note.seen = seen
    return note


def fail():
    raise KeyError("x")


SCHEDULED = {
    "delay_until": lambda task: task.delay_until(FAR, 1, y=2),
    "delay_for": lambda task: task.delay_for(3600, 1, y=2),
    "signature": lambda task: task.s(1, y=2).set(queue="mail", expires=60).delay_until(FAR),
    "schedule": lambda task: task.app.delayq.schedule(task.s(1, y=2), after=3600),
}
# A canvas, and what it gives.
CANVASES = {
    "task": (lambda task: task.s(1), 1),
    "chain": (lambda task: task.s(1) | task.s(5), 6),
    "chord": (lambda task: chord([task.s(1), task.s(2)], task.si(3)), 3),
    "group": (lambda task: group(task.s(1), task.s(2)), [1, 2]),
}


@pytest.fixture(params=CANVASES)
def scheduled(request, ran):
    """The result of each canvas."""
    return CANVASES[request.param][0](ran).delay_until(DUE)


def test_an_option_of_apply_async_runs_the_task_at_the_call(ran, redis):
    assert WAYS["apply_async"](ran, 1).get() == 1
    assert ran.seen == [(1, 0)]
    assert redis.keys() == []


@pytest.mark.parametrize("way", SCHEDULED)
def test_a_task_runs_at_the_call_and_its_result_is_celery_s_and_a_scheduled_one(ran, redis, way):
    result = SCHEDULED[way](ran)

    assert isinstance(result, EagerResult)
    assert isinstance(result, ScheduledResult)
    assert (result.get(), result.state, result.status) == (3, "SUCCESS", "SUCCESS")
    assert result.due > datetime.now(timezone.utc)
    assert ran.seen == [(1, 2)]
    assert redis.keys() == []


@pytest.mark.parametrize("what", CANVASES)
def test_a_canvas_s_result_has_run_and_cannot_be_cancelled(ran, redis, what):
    canvas, gives = CANVASES[what]
    result = canvas(ran).delay_until(DUE)

    assert isinstance(result, ScheduledResult)
    assert isinstance(result, GroupResult if what == "group" else EagerResult)
    assert (result.state, result.due) == ("SUCCESS", DUE)
    assert result.cancel() is Outcome.HANDED_OVER
    assert result.cancel(revoke=True) is Outcome.HANDED_OVER
    assert result.reschedule(after=60) is Outcome.HANDED_OVER
    assert result.reschedule("2110-01-01") is Outcome.HANDED_OVER
    assert result.reschedule(by=timedelta(days=-1)) is Outcome.HANDED_OVER
    assert (result.state, result.due) == ("SUCCESS", DUE)
    assert result.get() == gives
    assert redis.keys() == []


def test_the_due_time_from_now_counts_from_the_call(ran):
    before = datetime.now(timezone.utc)
    result = ran.delay_for(timedelta(hours=1), 1)

    assert timedelta() <= result.due - before - timedelta(hours=1) < timedelta(minutes=1)


def test_a_naive_due_time_is_read_in_the_app_s_time_zone(eager):
    task = eager(timezone="Europe/Berlin").task(name="t")(noop)

    result = task.delay_until(datetime(2100, 1, 1, 12))  # noqa: DTZ001

    assert result.due == datetime(2100, 1, 1, 11, tzinfo=timezone.utc)


def test_rescheduling_what_has_run_refuses_a_wrong_time_all_the_same(scheduled):
    with pytest.raises(InvalidDueTime):
        scheduled.reschedule("soon")
    with pytest.raises(InvalidOption):
        scheduled.reschedule()
    with pytest.raises(InvalidOption):
        scheduled.reschedule(after=60, by=60)


@pytest.mark.parametrize("passed", [lambda one: pickle.loads(pickle.dumps(one)), copy.copy])
def test_a_pickled_or_copied_result_is_the_same(scheduled, passed):
    read = passed(scheduled)

    assert type(read) is type(scheduled)
    assert (read.id, read.due, read.get()) == (scheduled.id, scheduled.due, scheduled.get())
    assert read.cancel() is read.reschedule(after=60) is Outcome.HANDED_OVER


@pytest.mark.parametrize(
    ("args", "error"),
    [(("soon", 1), InvalidDueTime), ((60,), TypeError)],
    ids=["time", "arguments"],
)
def test_a_wrong_time_and_wrong_arguments_are_refused_all_the_same(ran, args, error):
    with pytest.raises(error):
        ran.delay_for(*args)
    assert ran.seen == []


def test_an_error_of_the_task_is_in_the_result(app, redis):
    result = app.task(name="fail")(fail).delay_for(60)

    assert result.state == "FAILURE"
    assert isinstance(result.result, KeyError)
    with pytest.raises(KeyError):
        result.get()
    assert result.cancel() is Outcome.HANDED_OVER
    assert redis.keys() == []


def test_an_error_of_one_task_is_the_state_of_its_group(app, ran):
    failing = app.task(name="fail")(fail)

    assert group(ran.s(1), failing.s()).delay_for(60).state == "FAILURE"


def test_errors_are_raised_where_the_app_wants_them(eager):
    task = eager(task_eager_propagates=True).task(name="fail")(fail)

    with pytest.raises(KeyError):
        task.delay_for(60)


def test_a_call_returns_the_value_of_the_user_s_own_apply_async(app):
    class Own(app.Task):
        def apply_async(self, *args, **options):
            return "mine"

    assert app.task(name="own", base=Own)(fail).delay_for(60) == "mine"


def test_captured_times_do_not_matter_when_eager(app, ran, redis):
    app.conf.delayq_capture_eta = True

    assert ran.apply_async((1,), countdown=3600).get() == 1
    assert redis.keys() == []
