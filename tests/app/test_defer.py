"""`Defer` without a worker: where it is caught, and how it changes the store."""

import json
import pickle
from datetime import datetime, timedelta, timezone

import celery.app.task
import pytest
from celery import Celery, Task
from celery._state import _task_stack
from celery.exceptions import Ignore
from kombu.exceptions import OperationalError

from celery_delayq import Defer, DelayQ, InvalidDueTime
from celery_delayq.errors import AlreadyScheduled, InvalidOption, PutOffTooOften
from tests.support.ports import free_port

pytestmark = pytest.mark.libraries


@pytest.fixture
def plain():
    """An app without a DelayQ."""
    app = Celery("put-off", broker="redis://127.0.0.1:1/0", set_as_current=False)
    app.conf.task_always_eager = True
    with app:
        yield app


@pytest.fixture
def eager(plain):
    DelayQ(plain)
    return plain


@pytest.fixture
def runs():
    return []


def define(app, runs, times=2, **options):
    @app.task(bind=True, name="wait", shared=False, **options)
    def wait(self, *args):
        runs.append((self.request.id, self.request.retries))
        if len(runs) <= times:
            raise self.defer(after=3600)
        return [*args, len(runs)]

    return wait


def test_eagerly_it_runs_again_at_once_with_the_same_id_and_no_retry(eager, runs):
    result = define(eager, runs).apply_async((1,), task_id="a")
    assert result.get() == [1, 3]
    assert runs == [("a", 0)] * 3


def test_eagerly_a_task_that_never_stops_fails_and_says_so(eager, runs):
    result = define(eager, runs, times=10**6).apply_async()
    with pytest.raises(PutOffTooOften) as raised:
        result.get()
    assert str(raised.value) == (
        "task 'wait' was put off 100 times in a row; eagerly no time passes, so "
        "provide what it waits for before the call"
    )
    assert len(runs) == 100


def test_eagerly_a_task_knows_how_often_it_was_put_off_and_gives_up(eager):
    @eager.task(bind=True, shared=False)
    def stubborn(self):
        if self.put_offs < 3:
            raise self.defer(after=3600)
        return "gave up"

    assert stubborn.apply_async().get() == "gave up"
    assert stubborn.put_offs == 0


def test_eagerly_no_automatic_retry_takes_it_for_a_failure(eager, runs):
    task = define(eager, runs, autoretry_for=(Exception,), max_retries=0)
    assert task.apply_async().get() == [3]
    assert [retries for _, retries in runs] == [0, 0, 0]


def test_called_directly_it_reaches_the_caller(eager, runs):
    task = define(eager, runs)
    with pytest.raises(Defer):
        task()
    with pytest.raises(Defer):
        task.run()


def test_a_task_that_is_called_directly_puts_off_the_calling_task(eager, runs):
    inner = define(eager, runs)

    @eager.task(shared=False)
    def outer():
        return inner(7)

    assert outer.apply_async().get() == [7, 3]


@pytest.mark.parametrize("first", ["the task", "the app's end"])
def test_a_task_can_be_put_off_that_was_there_before_its_delayq_or_came_last(plain, runs, first):
    if first == "the task":
        task = define(plain, runs)
        plain.finalize()
        DelayQ(plain)
    else:
        DelayQ(plain)
        plain.finalize()
        task = define(plain, runs)
    assert task.apply_async().get() == [3]


class Counting(Task):
    name = "counting"
    autoretry_for = (Exception,)
    max_retries = 0

    def __init__(self):
        self.runs = 0

    def begin(self):
        self.runs += 1
        if self.runs < 3:
            raise Defer(after=1)

    def run(self):
        self.begin()
        return self.runs


class Unnamed(Counting):
    name = None


class Calling(Counting):
    def __call__(self, *args, **kwargs):
        return self.run(*args, **kwargs)


class Locking(Counting):
    """A base that takes a lock around every task."""

    def __call__(self, *args, **kwargs):
        self.begin()
        return self.run(*args, **kwargs)

    def run(self):
        return self.runs


class Preparing(Counting):
    def before_start(self, task_id, args, kwargs):
        self.begin()

    def run(self):
        return self.runs


@pytest.mark.parametrize("kind", [Counting, Unnamed, Locking, Calling, Preparing])
def test_each_kind_of_task_class_can_be_put_off(eager, kind):
    assert eager.register_task(kind()).apply_async().get() == 3


def test_a_task_of_a_base_with_a_call_of_its_own_can_be_put_off(eager, runs):
    class Base(Task):
        def __call__(self, *args, **kwargs):
            runs.append("called")
            if len(runs) < 3:
                raise self.defer(after=1)
            return self.run(*args, **kwargs)

    @eager.task(base=Base, name="one", shared=False)
    def one():
        return "one"

    @eager.task(base=Base, name="two", shared=False)
    def two():
        return "two"

    assert (one.apply_async().get(), two.apply_async().get()) == ("one", "two")
    assert len(runs) == 4


def test_without_a_delayq_it_is_an_error_that_says_so(plain):
    @plain.task(name="nobody", shared=False)
    def nobody():
        raise Defer(after=5)

    result = nobody.apply_async()
    assert result.state == "FAILURE"
    assert str(result.result) == (
        "Defer was not caught; a worker catches it around a task's own code if its app has a DelayQ"
    )


@pytest.mark.usefixtures("eager")
def test_a_second_app_without_a_delayq_is_left_alone(runs):
    with Celery("other", set_as_current=False) as other:
        task = define(other, runs)
        other.finalize()
        assert vars(task).get("run") is None


def test_a_task_is_wrapped_once_however_often_it_is_bound(eager, runs):
    task = define(eager, runs)
    eager.finalize()
    once = task.run
    DelayQ(eager)
    task.bind(eager)
    assert task.run == once


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, InvalidOption),
        ({"after": 1, "at": 2}, InvalidOption),
        ({"after": float("nan")}, InvalidDueTime),
        ({"after": "5"}, InvalidDueTime),
        ({"at": "noon"}, InvalidDueTime),
    ],
)
def test_defer_wants_one_time_which_is_refused_where_it_is_written(given, error):
    with pytest.raises(error) as caught:
        Defer(**given)
    assert ("exactly one of after and at" in str(caught.value)) is (error is InvalidOption)


@pytest.mark.parametrize(
    "defer",
    [Defer(5), Defer(after=timedelta(1)), Defer(at=datetime(2030, 1, 1, tzinfo=timezone.utc))],
)
def test_defer_travels_between_processes(defer):
    assert pickle.loads(pickle.dumps(defer)).args == defer.args


# How `Defer` changes the store, in a process that runs tasks as a worker does.


LATER = 3600


@pytest.fixture
def later(app):
    @app.task(name="later", shared=False, bind=True, ignore_result=True)
    def later(self, *_, **__):
        raise self.defer(after=LATER)

    return later


def run(task, task_id="a", tag="t1", **said):
    """Run a task for a message that a worker received."""
    headers = task.app.amqp.as_task_v2(task_id, task.name, (1,)).headers
    info = {"exchange": "", "routing_key": "mail", "priority": 3, "redelivered": False}
    given = {"args": (1,), "kwargs": {}, "properties": {"delivery_tag": tag}, "delivery_info": info}
    _task_stack.push(task)
    task.push_request(**{**headers, "called_directly": False, **given, **said})
    try:
        return task.run(1)
    finally:
        task.pop_request()
        _task_stack.pop()


def put_off(task, **said):
    """Run a task that puts itself off; returns the waiting entry, if there is one."""
    with pytest.raises(Ignore):
        run(task, **said)
    return task.app.delayq.get("a")


def next_message(app, redis):
    """Deliver the next run at once; returns its message."""
    assert app.delayq.run_now("a")
    assert app.delayq.hand_over() == 1
    [message] = map(json.loads, redis.lrange("mail\x06\x163", 0, -1))
    return message


def test_the_next_run_of_a_task_put_off_goes_to_the_same_queue_with_the_same_priority(
    app, later, redis
):
    task = put_off(later)
    assert (task.queue, task.args) == ("mail", (1,))
    assert next_message(app, redis)["headers"]["id"] == "a"


def test_a_message_is_put_off_once_however_often_it_runs(later):
    first = put_off(later)
    assert put_off(later).revision == first.revision


@pytest.mark.parametrize(("tag", "again"), [("t1", False), ("t2", True)])
def test_after_a_cancel_another_message_under_its_id_is_put_off_and_the_same_is_not(
    app, later, tag, again
):
    assert put_off(later)
    assert app.delayq.cancel("a")
    assert bool(put_off(later, tag=tag)) is again


def test_a_message_that_nothing_names_is_put_off_too(later):
    assert put_off(later, properties={})


def test_a_task_cannot_be_put_off_while_another_with_its_id_waits(app, later):
    app.send_task("other", task_id="a", delayq_after=LATER)
    with pytest.raises(AlreadyScheduled):
        run(later)
    assert app.delayq.get("a").task == "other"


def test_a_task_raises_the_broker_s_error_if_the_broker_is_away_too(delayq_app):
    app = delayq_app(f"redis://127.0.0.1:{free_port()}/0", delayq_timeout=0.2)

    @app.task(name="later", shared=False)
    def later(_x):
        raise Defer(after=LATER)

    with pytest.raises(OperationalError):
        run(later)


def test_a_time_without_a_zone_is_one_of_the_app(app):
    app.conf.timezone = "Asia/Tokyo"

    @app.task(name="noon", shared=False)
    def noon(_x):
        raise Defer(at="2030-01-01T12:00:00")

    assert put_off(noon).due.isoformat() == "2030-01-01T03:00:00+00:00"


def test_the_attributes_of_the_task_count_anew(later):
    later.delayq_tags = ["own"]
    assert put_off(later).tags == ("own",)


@pytest.mark.parametrize(
    ("before", "after"), [({}, 1), ({"delayq_put_offs": 4}, 5), ({"delayq_put_offs": "x"}, 1)]
)
def test_a_task_s_put_offs_are_counted_beside_the_caller_s_headers(
    app, later, redis, before, after
):
    task = put_off(later, headers={"tenant": 7, **before}, **before)
    assert task.put_offs == after
    headers = next_message(app, redis)["headers"]
    assert (headers["delayq_put_offs"], headers["tenant"]) == (after, 7)


def updated(task):
    task.update_state(state="PROGRESS", meta={"done": 1})


def stored(task):
    task.backend.store_result(task.request.id, {"done": 1}, "PROGRESS")


@pytest.mark.parametrize("report", [updated, stored])
@pytest.mark.parametrize("said", [{}, {"ignore_result": False}], ids=["its own", "the call's"])
def test_a_state_that_the_task_stored_of_itself_is_taken_back(app_with_results, report, said):
    app = app_with_results
    if said and not hasattr(celery.app.task, "get_actual_ignore_result"):
        pytest.skip("in this Celery a call cannot ask for what its task ignores")

    @app.task(name="later", shared=False, bind=True, ignore_result=bool(said))
    def later(self, _x):
        report(self)
        raise self.defer(after=LATER)

    put_off(later, **said)

    result = app.AsyncResult("a")
    assert (result.state, result.backend_state, result.info) == ("SCHEDULED", "PENDING", None)


def test_a_task_that_ignores_results_has_none_stored(app_with_results):
    @app_with_results.task(name="later", shared=False, ignore_result=True)
    def later(_x):
        raise Defer(after=LATER)

    put_off(later, ignore_result=None)

    assert app_with_results.backend.client.keys("celery-task-meta-*") == []


@pytest.mark.parametrize(
    ("lease", "invisible", "seconds"), [(30, {}, 3600), (30, 7200, 7200), (3600, 10, 3600)]
)
def test_a_mark_outlives_what_may_bring_its_message_again(
    delayq_app, url, lease, invisible, seconds
):
    options = {"visibility_timeout": invisible} if invisible else {}
    app = delayq_app(url, delayq_lease=lease, broker_transport_options=options)

    made = app.delayq.services.copies.delivery(("a", "b"), again=True)

    assert (made.keep_ms, made.most) == ((3600 + seconds) * 1000, 1_000_000)
    app.conf.delayq_remember = (60, 10_000)
    made = app.delayq.services.copies.delivery(("a", "b"), again=True)
    assert (made.keep_ms, made.most) == ((60 + seconds) * 1000, 10_000)


@pytest.mark.parametrize(("hours", "warned"), [(2, False), (0.5, True)])
def test_past_its_own_expiry_it_is_put_off_with_a_warning(later, caplog, hours, warned):
    expires = (datetime.now(timezone.utc) + timedelta(hours=hours)).isoformat()
    with caplog.at_level("WARNING"):
        assert put_off(later, expires=expires)
    assert bool([one for one in caplog.messages if "expires at" in one]) is warned


def test_the_next_run_of_a_task_put_off_has_the_serializer_of_its_message(app, later, redis):
    app.conf.accept_content = ["json", "pickle"]
    put_off(later, args=((1, 2),), delayq_serializer="pickle")
    message = next_message(app, redis)
    assert message["content-type"] == "application/x-python-serialize"
    assert "delayq_serializer" not in message["headers"]
