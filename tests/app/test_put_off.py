"""`Defer` without a worker: eagerly, in a direct call, and around which tasks it is caught."""

import pickle
from datetime import datetime, timedelta, timezone

import pytest
from celery import Celery, Task

from celery_delayq import Defer, DelayQ, InvalidDueTime
from celery_delayq.errors import InvalidOption, PutOffTooOften

pytestmark = pytest.mark.libraries


@pytest.fixture
def plain():
    """An app without a DelayQ."""
    app = Celery("put-off", broker="redis://127.0.0.1:1/0", set_as_current=False)
    app.conf.task_always_eager = True
    with app:
        yield app


@pytest.fixture
def app(plain):
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


def test_eagerly_it_runs_again_at_once_with_the_same_id_and_no_retry(app, runs):
    result = define(app, runs).apply_async((1,), task_id="a")
    assert result.get() == [1, 3]
    assert runs == [("a", 0)] * 3


def test_eagerly_a_task_that_never_stops_fails_and_says_so(app, runs):
    result = define(app, runs, times=10**6).apply_async()
    with pytest.raises(PutOffTooOften) as raised:
        result.get()
    assert str(raised.value) == (
        "task 'wait' was put off 100 times in a row; eagerly no time passes, so "
        "provide what it waits for before the call"
    )
    assert len(runs) == 100


def test_eagerly_a_task_knows_how_often_it_was_put_off_and_gives_up(app):
    @app.task(bind=True, shared=False)
    def stubborn(self):
        if self.put_offs < 3:
            raise self.defer(after=3600)
        return "gave up"

    assert stubborn.apply_async().get() == "gave up"
    assert stubborn.put_offs == 0


def test_eagerly_no_automatic_retry_takes_it_for_a_failure(app, runs):
    task = define(app, runs, autoretry_for=(Exception,), max_retries=0)
    assert task.apply_async().get() == [3]
    assert [retries for _, retries in runs] == [0, 0, 0]


def test_called_directly_it_reaches_the_caller(app, runs):
    task = define(app, runs)
    with pytest.raises(Defer):
        task()
    with pytest.raises(Defer):
        task.run()


def test_a_task_that_is_called_directly_puts_off_the_calling_task(app, runs):
    inner = define(app, runs)

    @app.task(shared=False)
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
def test_each_kind_of_task_class_can_be_put_off(app, kind):
    assert app.register_task(kind()).apply_async().get() == 3


def test_a_task_of_a_base_with_a_call_of_its_own_can_be_put_off(app, runs):
    class Base(Task):
        def __call__(self, *args, **kwargs):
            runs.append("called")
            if len(runs) < 3:
                raise self.defer(after=1)
            return self.run(*args, **kwargs)

    @app.task(base=Base, name="one", shared=False)
    def one():
        return "one"

    @app.task(base=Base, name="two", shared=False)
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


@pytest.mark.usefixtures("app")
def test_a_second_app_without_a_delayq_is_left_alone(runs):
    with Celery("other", set_as_current=False) as other:
        task = define(other, runs)
        other.finalize()
        assert vars(task).get("run") is None


def test_a_task_is_wrapped_once_however_often_it_is_bound(app, runs):
    task = define(app, runs)
    app.finalize()
    once = task.run
    DelayQ(app)
    task.bind(app)
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
