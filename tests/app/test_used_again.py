"""An id that is used again has no past: neither in the result backend nor in this process."""

import itertools

import pytest
from celery import group, states
from celery.exceptions import TimeoutError as NoResultYet

from celery_delayq import Item
from celery_delayq.core.scheduling import writing
from celery_delayq.errors import AlreadyScheduled, StoreUnavailable
from tests.app.conftest import app_with_results as app
from tests.app.support import FAR
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE

__all__ = ["app"]

pytestmark = pytest.mark.libraries

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
def task_id():
    return f"order-{next(_numbers)}"


def state(app, task_id):
    return app.backend.get_task_meta(task_id, cache=False)["status"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", ENDS)
def test_the_old_state_of_an_id_is_gone_before_the_new_task_waits(app, add, task_id, way, end):
    ENDS[end](app.backend, task_id)
    assert app.AsyncResult(task_id).state != states.PENDING  # and this process has it cached
    WAYS[way](add, task_id)
    assert state(app, task_id) == states.PENDING
    assert app.backend.get_state(task_id) == states.PENDING


def test_a_get_does_not_read_a_message_of_the_cancelled_task(app, delayq, add, task_id):
    """This process is subscribed to the id, and the message of its REVOKED has arrived."""
    first = delayq.schedule(add.s(1).set(task_id=task_id), at=FAR)
    assert first.cancel()
    second = delayq.schedule(add.s(1).set(task_id=task_id), at=FAR)
    with pytest.raises(NoResultYet):
        second.get(timeout=0.01)
    app.backend.mark_as_done(task_id, "new")
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
def test_a_call_that_is_refused_leaves_the_old_result(app, delayq, add, task_id, way):
    app.backend.mark_as_done(task_id, "old")
    delayq.schedule(add.s(1), at=FAR, key="k")
    if way == "bulk":
        delayq.schedule_many(
            add, [Item((1,), task_id="x"), Item((2,), task_id=task_id, key="k")], at=FAR
        )
    else:
        with pytest.raises(AlreadyScheduled):
            add.apply_async((1,), delayq_at=FAR, task_id=task_id, delayq_key="k")
    assert app.AsyncResult(task_id).get(timeout=30) == "old"


@pytest.mark.parametrize("way", WAYS)
def test_a_call_that_the_store_does_not_take_leaves_the_old_result(app, add, task_id, way):
    app.backend.mark_as_done(task_id, "old")
    app.conf.delayq_url = f"redis://127.0.0.1:{free_port()}/0"
    app.conf.task_publish_retry = False
    with pytest.raises(StoreUnavailable):
        WAYS[way](add, task_id)
    assert app.AsyncResult(task_id).get(timeout=30) == "old"


@pytest.fixture
def unanswered(app, task_id, swallowing, passing):
    """The store takes the call with this id, and no answer comes back."""
    proxy = swallowing(task_id.encode(), times=99)
    app.conf.delayq_url = f"redis://127.0.0.1:{proxy.port}/0"
    app.conf.update(delayq_timeout=PATIENCE, task_publish_retry=False)
    return passing(proxy)


@pytest.mark.parametrize("way", WAYS)
def test_a_call_that_may_have_been_taken_leaves_no_old_result(app, add, task_id, way, unanswered):
    app.backend.mark_as_done(task_id, "old")
    with unanswered, pytest.raises(StoreUnavailable) as caught:
        WAYS[way](add, task_id)
    assert caught.value.may_have_run
    assert state(app, task_id) == states.PENDING


def test_an_id_of_celery_s_own_making_costs_the_backend_nothing(app, add, monkeypatch):
    monkeypatch.setattr(app.backend, "get_task_meta", lambda *_, **__: pytest.fail("asked"))
    assert add.delay_until(FAR, 1).id
    assert add.apply_async((1,), delayq_at=FAR).id
    add.apply_async((1,), delayq_at=FAR, task_id="mine", ignore_result=True)


def test_a_backend_that_fails_does_not_fail_the_call_and_is_left_alone(app, add, monkeypatch):
    asked = []

    def fail(task_id, **_):
        asked.append(task_id)
        raise ConnectionError("away")

    monkeypatch.setattr(app.backend, "get_task_meta", fail)
    for task_id in "abc":
        assert add.apply_async((1,), delayq_at=FAR, task_id=task_id).id == task_id
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


def delivered(app, task_id):
    app.delayq.schedule(app.tasks["add"].s(2).set(task_id=task_id), after=0)
    assert app.delayq.hand_over() == 1
    app.backend.mark_as_done(task_id, "new")


def scheduled(app, task_id):
    return app.delayq.schedule(app.tasks["add"].s(2).set(task_id=task_id), at=FAR)


# A caller's use of the id while REVOKED is on its way, and its state after that.
MEANWHILE = {
    "scheduled": (scheduled, states.PENDING),
    "delivered": (delivered, states.SUCCESS),
    "cancelled again": (lambda *it: scheduled(*it).cancel(), states.REVOKED),
}


@pytest.mark.parametrize("way", MEANWHILE)
def test_a_revoked_that_lands_after_the_id_was_used_again_is_taken_back(
    app, add, task_id, held_up, way
):
    again, end = MEANWHILE[way]

    def do():
        held_up.clear()
        again(app, task_id)

    first = app.delayq.schedule(add.s(1).set(task_id=task_id), at=FAR)
    held_up.append(do)
    assert first.cancel()
    assert state(app, task_id) == end
    if again is scheduled:
        assert app.delayq.cancel(task_id)
        assert state(app, task_id) == states.REVOKED
