"""Several apps in one process: each method of a ``DelayQ`` writes to the store of its own app."""

import threading

import pytest
from celery import Task, chain, chord, current_app, group, shared_task, signature

from celery_delayq import DelayQ
from celery_delayq.errors import InvalidOption
from tests.app.support import FAR, LONG_AGO, lists, noop

pytestmark = pytest.mark.libraries


@pytest.fixture
def apps(delayq_app, redis_server, redis):
    """Two apps with a broker and a store each; the second one is the current app."""
    made = [
        delayq_app(redis_server.url(db), redis_server.url(5), delayq_prefix=name)
        for db, name in enumerate(("first", "second"))
    ]
    for app, name in zip(made, ("first", "second"), strict=True):
        app.main = name
    return made


@pytest.fixture
def first(apps):
    return apps[0].delayq


@pytest.fixture
def second(apps):
    return apps[1].delayq


@pytest.fixture
def remind(apps):
    return shared_task(name="remind")(noop)


def ids_of(delayq):
    return [task.id for task in delayq.tasks()]


SIGNATURES = {
    "signature": lambda task: task.s(1),
    "task": lambda task: task,
    "name": lambda task: signature(task.name, (1,)),
    "chain": lambda task: chain(task.s(1), task.si(2)),
    "group": lambda task: group(task.s(1), task.s(2)),
    "chord": lambda task: chord([task.s(1)], task.si(2)),
    "map": lambda task: task.map([1]),
    "frozen": lambda task: task.s(1).set(task_id="frozen"),
}
WAYS = {
    "schedule": lambda delayq, made: delayq.schedule(made, at=FAR).id,
    "every": lambda delayq, made: delayq.every("daily", made, 86_400) and ids_of(delayq)[0],
    "schedule_many": lambda delayq, made: delayq.schedule_many(made, [((1,), {})], at=FAR).ids[0],
}
PLAIN = ("signature", "task", "name")


@pytest.mark.parametrize(
    ("way", "what"),
    [("schedule", what) for what in SIGNATURES]
    + [(way, what) for way in ("every", "schedule_many") for what in PLAIN],
)
@pytest.mark.parametrize("where", ["here", "thread"])
def test_a_shared_task_waits_in_the_store_of_the_delayq_that_was_called(
    first, second, remind, way, what, where
):
    done = []

    def call():
        done.append(WAYS[way](first, SIGNATURES[what](remind)))

    if where == "here":
        call()
    else:  # without a current app, Celery makes one up
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    [task_id] = done
    assert first.get(task_id).id == task_id
    assert second.counts().scheduled == 0
    assert first.cancel(task_id)


@pytest.mark.parametrize("what", ["signature", "chain", "map"])
def test_a_shared_task_is_due_at_the_broker_of_the_delayq_that_was_called(
    first, second, remind, redis_server, what
):
    first.schedule(SIGNATURES[what](remind), at=LONG_AGO)
    assert (second.hand_over(), first.hand_over()) == (0, 1)
    for db, found in ((0, [b"celery"]), (1, [])):
        with redis_server.client(db=db) as client:
            assert list(lists(client)) == found


def test_a_signature_s_own_method_goes_to_the_app_to_which_celery_sends_it(
    first, second, remind, redis_server
):
    remind.delay(1)
    with redis_server.client(db=1) as client:
        assert list(lists(client)) == [b"celery"]
    remind.delay_until(FAR, 1)
    remind.s(1).delay_until(FAR)
    chain(remind.s(1), remind.s(2)).delay_until(FAR)
    assert (first.counts().scheduled, second.counts().scheduled) == (0, 3)


REFUSED = {
    "task": lambda task: task,
    "signature": lambda task: task.s(1),
    "chain": lambda task: chain(task.s(1), task.s(2)),
    "group": lambda task: group(task.s(1)),
}


@pytest.mark.parametrize(
    ("way", "what"),
    [("schedule", what) for what in REFUSED] + [("every", "task"), ("schedule_many", "task")],
)
@pytest.mark.parametrize("of", ["second alone", "both"])
def test_a_task_that_celery_sends_by_another_app_is_refused(first, second, way, what, of):
    if of == "both":  # one object: Celery sends it by the app that registered it last

        class Remind(Task):
            name = "remind"

        task = Remind()
        first.app.register_task(task)
        second.app.register_task(task)
    else:
        task = second.app.task(name="remind", shared=False)(noop)

    with pytest.raises(InvalidOption) as caught:
        WAYS[way](first, REFUSED[what](task))

    assert str(caught.value) == (
        "signature is 'remind'; expected a task of the app first; for a task of another app use "
        "that app's DelayQ, or app.signature(name) to send it by its name"
    )
    assert first.counts().scheduled == second.counts().scheduled == 0


def test_the_name_of_another_app_s_task_is_sent_by_the_app_that_was_called(first, second):
    task = second.app.task(name="remind", shared=False)(noop)
    result = first.schedule(first.app.signature(task.name, (1,)), at=FAR)
    assert first.get(result).task == "remind"
    assert second.counts().scheduled == 0


def test_the_caller_s_signature_stays_as_it_is(first, remind):
    made = remind.s(1).set(queue="mail")
    before = dict(made), made.app, made.type
    first.schedule(made, at=FAR)
    assert (dict(made), made.app, made.type) == before


def test_a_delayq_of_the_current_app_stays_with_that_app(first, second):
    delayq = DelayQ(current_app)
    first.app.set_current()
    assert delayq.app is delayq.services.app is second.app
