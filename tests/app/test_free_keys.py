"""Which keys and ids are free: those of delivered, dead and in-flight tasks."""

import json

import pytest
from celery import states
from celery.exceptions import TaskRevokedError

from celery_delayq import AlreadyScheduled
from celery_delayq.errors import InFlight
from tests.app.conflicts import ALWAYS, told, waiting
from tests.app.support import FAR, LONG_AGO, claim, hand_over_until_dead

pytestmark = pytest.mark.operations


@pytest.fixture
def app(app_with_results):
    return app_with_results


LEAVING = {
    "handed over": lambda delayq, task: task.reschedule(LONG_AGO) and delayq.hand_over(),
    "cancelled": lambda delayq, task: delayq.cancel(task.id),
}


@pytest.mark.parametrize("conflict", ALWAYS)
@pytest.mark.parametrize("way", LEAVING)
def test_the_key_of_a_task_that_has_left_is_free(add, delayq, redis, way, conflict):
    first = delayq.schedule(add.s(1), at=FAR, key="k")
    assert LEAVING[way](delayq, first)
    assert redis.hlen("{delayq:0}:holders") == 0
    known = told(first.id, add.app)

    new = delayq.schedule(add.s(2), at=FAR, key="k", conflict=conflict)

    assert not new.existed
    assert waiting(delayq) == {new.id: (2,)}
    assert told(first.id, add.app) == known


@pytest.mark.parametrize("conflict", ALWAYS)
def test_a_dead_task_holds_no_key(app, add, delayq, redis, conflict):
    redis.set("broken", "not a list")
    first = delayq.schedule(add.s(1).set(queue="broken"), at=LONG_AGO, key="k")
    hand_over_until_dead(delayq, redis)

    new = delayq.schedule(add.s(2), at=FAR, key="k", conflict=conflict)

    assert not new.existed
    assert first.state == "DEAD"
    assert waiting(delayq) == {new.id: (2,)}
    assert delayq.cancel(first.id)
    with pytest.raises(AlreadyScheduled):
        delayq.schedule(add.s(3), at=FAR, key="k")


@pytest.mark.parametrize("conflict", ALWAYS[1:])
def test_a_dead_task_gives_its_id_to_any_policy_but_reject(add, delayq, redis, conflict):
    redis.set("broken", "not a list")
    add.s(1).set(task_id="a", queue="broken").delay_until(LONG_AGO)
    hand_over_until_dead(delayq, redis)

    with pytest.raises(AlreadyScheduled):
        add.s(2).set(task_id="a").delay_until(FAR)
    new = delayq.schedule(add.s(3).set(task_id="a"), at=FAR, conflict=conflict)

    assert not new.existed
    assert waiting(delayq) == {"a": (3,)}
    assert delayq.counts().dead == 0


@pytest.fixture
def relayed(delayq_app, redis_server, redis):
    app = delayq_app("memory://", redis_server.url(1), delayq_url=redis_server.url())

    @app.task(name="add")
    def add(x, y=0):
        return x + y

    return add


@pytest.mark.parametrize("conflict", ["replace", "latest", "debounce"])
def test_a_task_being_published_cannot_be_replaced_by_its_id(relayed, conflict):
    delayq = relayed.app.delayq
    relayed.s(1).set(task_id="a").delay_until(LONG_AGO)
    claim(delayq)

    with pytest.raises(InFlight) as caught:
        delayq.schedule(relayed.s(2).set(task_id="a"), at=FAR, conflict=conflict)

    assert isinstance(caught.value, AlreadyScheduled)
    assert str(caught.value) == "task 'a' is being published this moment; try again shortly"
    assert delayq.get("a").args == (1,)


@pytest.mark.parametrize("conflict", ["keep", "earliest"])
def test_a_task_being_published_is_kept_by_its_id(relayed, conflict):
    delayq = relayed.app.delayq
    relayed.s(1).set(task_id="a").delay_until(LONG_AGO)
    claim(delayq)

    kept = delayq.schedule(relayed.s(2).set(task_id="a"), at=FAR, conflict=conflict)

    assert (kept.id, kept.existed) == ("a", True)
    assert kept.due.timestamp() == LONG_AGO


@pytest.mark.parametrize("conflict", ALWAYS)
def test_the_key_of_a_task_being_published_is_free(relayed, conflict):
    delayq = relayed.app.delayq
    first = delayq.schedule(relayed.s(1), at=LONG_AGO, key="k")
    claim(delayq)

    new = delayq.schedule(relayed.s(2), at=FAR, key="k", conflict=conflict)

    assert not new.existed
    assert delayq.state(first.id).name == "IN_FLIGHT"
    assert waiting(delayq) == {new.id: (2,)}


def test_a_replaced_relayed_task_is_revoked_and_names_its_replacement(relayed):
    delayq = relayed.app.delayq
    first = delayq.schedule(relayed.s(1), at=FAR, key="k")

    second = delayq.schedule(relayed.s(2), at=FAR, key="k", conflict="replace")

    assert told(first.id, relayed.app) == (states.REVOKED, f"replaced by {second.id}")
    assert json.loads(delayq.services.entries.find(second.id).message)


def test_a_caller_that_waits_over_rpc_gets_the_revocation_too(delayq_app, url):
    app = delayq_app("memory://", "rpc://", delayq_url=url)
    terms = {"delayq_at": FAR, "delayq_key": "k"}
    first = app.send_task("t", **terms, ignore_result=False)
    kept = app.send_task("t", **terms, delayq_conflict="keep")
    last = app.send_task("t", **terms, delayq_conflict="replace")

    for result, why in ((kept, f"kept {first.id}"), (first, f"replaced by {last.id}")):
        with pytest.raises(TaskRevokedError) as caught:
            result.get(timeout=30)
        assert str(caught.value) == why
