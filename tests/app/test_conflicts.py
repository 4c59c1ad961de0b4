"""Two calls with the same key or id: which task waits, and which answer the other call returns."""

from datetime import timedelta

import pytest
from celery import states
from celery.exceptions import TaskRevokedError
from celery.signals import task_revoked

from celery_delayq import AlreadyScheduled, Outcome
from tests.app.conflicts import KEEPING, REPLACING, owed, told, waiting
from tests.app.support import FAR, LONG_AGO
from tests.support.shards import with_one_shard


@pytest.fixture
def app(app_with_results):
    return app_with_results


@pytest.fixture
def revoked():
    """The ids for which ``task_revoked`` is sent."""
    ids = []

    def note(request, **_):
        ids.append(request.id)

    task_revoked.connect(note)
    yield ids
    task_revoked.disconnect(note)


def test_a_key_that_is_taken_is_refused(add, delayq):
    holder = delayq.schedule(add.s(1), at=FAR, key="k")

    with pytest.raises(AlreadyScheduled) as caught:
        delayq.schedule(add.s(2), at=FAR, key="k")

    assert caught.value.holder == holder.id
    assert str(caught.value) == (
        f"task '{holder.id}' is already scheduled under this key; cancel it first, or set "
        "delayq_conflict to choose which one stays"
    )
    assert waiting(delayq) == {holder.id: (1,)}


def test_tasks_of_other_keys_and_of_none_are_not_in_each_other_s_way(add, delayq):
    for key in ("a", "b", None, None):
        delayq.schedule(add.s(1), at=FAR, key=key, conflict="replace")

    assert len(waiting(delayq)) == 4


@pytest.mark.parametrize("way", KEEPING)
def test_a_call_returns_the_task_that_is_kept(add, delayq, redis, revoked, way):
    holder = delayq.schedule(add.s(1), at=FAR, key="k")

    kept = delayq.schedule(add.s(2), key="k", **KEEPING[way])

    assert (kept.id, kept.due, kept.existed) == (holder.id, holder.due, True)
    assert not holder.existed
    assert waiting(delayq) == {holder.id: (1,)}
    assert redis.info("keyspace").keys() == {"db0"}, "an unknown id leaves no key behind"
    assert revoked == []
    assert kept.cancel()
    assert holder.state == states.REVOKED


@pytest.mark.parametrize("way", REPLACING)
def test_a_replaced_task_is_revoked_and_names_its_replacement(add, delayq, redis, revoked, way):
    holder = delayq.schedule(add.s(1), at=FAR, key="k")

    new = delayq.schedule(add.s(2), key="k", **REPLACING[way])

    assert not new.existed
    assert new.due.timestamp() == REPLACING[way]["at"]
    assert waiting(delayq) == {new.id: (2,)}
    assert told(holder.id, add.app) == (states.REVOKED, f"replaced by {new.id}")
    assert revoked == [holder.id]
    assert owed(redis) == 0
    assert holder.cancel() is Outcome.NOT_FOUND
    assert new.cancel()


@pytest.mark.parametrize("way", KEEPING)
def test_an_id_that_celery_gave_out_is_revoked_where_another_is_kept(
    add, delayq, redis, revoked, way
):
    holder = delayq.schedule(add.s(1), at=FAR, key="k")
    options = {f"delayq_{name}": value for name, value in KEEPING[way].items()}

    result = add.apply_async((2,), delayq_key="k", **options)

    assert waiting(delayq) == {holder.id: (1,)}
    with pytest.raises(TaskRevokedError) as caught:
        result.get(timeout=30)
    assert str(caught.value) == f"kept {holder.id}"
    assert told(holder.id, add.app)[0] == states.PENDING
    assert revoked == [result.id]
    assert owed(redis) == 0


def test_an_id_that_a_signature_brings_is_revoked_as_well(app, add, delayq):
    holder = delayq.schedule(add.s(1), at=FAR, key="k")

    add.s(2).set(task_id="mine", delayq_key="k", delayq_conflict="keep").delay_until(FAR)

    assert told("mine", app) == (states.REVOKED, f"kept {holder.id}")


def test_a_task_that_ignores_results_has_no_revocation_stored(app, add, delayq, redis):
    add.ignore_result = True
    delayq.schedule(add.s(1), at=FAR, key="k")

    delayq.schedule(add.s(2), at=FAR, key="k", conflict="replace")
    add.apply_async((3,), delayq_at=FAR, delayq_key="k", delayq_conflict="keep")

    assert redis.info("keyspace").keys() == {"db0"}
    assert owed(redis) == 0


def test_without_a_result_backend_the_signal_tells(delayq_app, url, redis, revoked):
    delayq = delayq_app(url).delayq
    first = delayq.schedule(delayq.app.signature("t"), at=FAR, key="k")

    delayq.schedule(delayq.app.signature("t"), at=FAR, key="k", conflict="replace")
    delayq.app.send_task("t", delayq_at=FAR, delayq_key="k", delayq_conflict="keep")

    assert revoked == [first.id]
    assert owed(redis) == 0


# The same id, without a key.


@pytest.mark.parametrize("way", KEEPING)
def test_a_task_of_the_same_id_is_kept_as_one_of_the_same_key_is(app, add, delayq, way):
    first = add.s(1).set(task_id="a").delay_until(FAR)

    again = delayq.schedule(add.s(2).set(task_id="a"), **KEEPING[way])
    options = {f"delayq_{name}": value for name, value in KEEPING[way].items()}
    add.apply_async((3,), task_id="a", **options)

    assert (again.id, again.due, again.existed) == ("a", first.due, True)
    assert waiting(delayq) == {"a": (1,)}
    assert first.state == "SCHEDULED"
    assert told("a", app)[0] == states.PENDING


@pytest.mark.parametrize("way", REPLACING)
def test_a_task_of_the_same_id_is_replaced_and_nobody_is_told(app, add, delayq, revoked, way):
    add.s(1).set(task_id="a").delay_until(FAR)

    again = delayq.schedule(add.s(2).set(task_id="a"), **REPLACING[way])

    assert not again.existed
    assert waiting(delayq) == {"a": (2,)}
    assert told("a", app)[0] == states.PENDING
    assert revoked == []


@with_one_shard
def test_a_call_replaces_both_the_task_of_its_id_and_the_task_of_its_key(app, add, delayq):
    add.s(1).set(task_id="a").delay_until(FAR)
    holder = delayq.schedule(add.s(2), at=FAR, key="k")

    add.s(3).set(task_id="a", delayq_key="k", delayq_conflict="replace").delay_until(FAR)

    assert waiting(delayq) == {"a": (3,)}
    assert told(holder.id, app) == (states.REVOKED, "replaced by a")


def test_an_id_that_gave_way_once_can_be_scheduled(app, add, delayq):
    delayq.schedule(add.s(1), at=FAR, key="k")
    options = {"delayq_at": FAR, "delayq_key": "k", "delayq_conflict": "keep"}
    given = add.apply_async((2,), **options)

    add.apply_async((3,), task_id=given.id, delayq_at=LONG_AGO)
    assert delayq.hand_over() == 1

    assert len(waiting(delayq)) == 1


# Debounce.


def test_debounce_puts_the_due_time_off_with_each_call(add, delayq):
    for number in range(5):
        last = delayq.schedule(add.s(number), at=FAR + number, key="k", conflict="debounce")

    assert waiting(delayq) == {last.id: (4,)}
    assert last.due.timestamp() == FAR + 4


@pytest.mark.parametrize("wait", [60, timedelta(minutes=1)])
def test_debounce_puts_it_off_by_max_wait_since_the_first_call_at_most(add, delayq, wait):
    first = delayq.schedule(add.s(0), after=30, key="k", conflict="debounce", max_wait=wait)
    created = delayq.get(first.id).created

    for number in (1, 2):
        last = delayq.schedule(
            add.s(number), after=3600, key="k", conflict="debounce", max_wait=wait
        )

    task = delayq.get(last.id)
    assert task.args == (2,)
    assert task.created == created
    assert timedelta(0) <= task.due - created - timedelta(minutes=1) <= timedelta(milliseconds=1)
    assert last.due == task.due


def test_the_first_of_a_row_is_not_put_before_its_own_time(add, delayq):
    alone = delayq.schedule(add.s(0), at=FAR, key="k", conflict="debounce", max_wait=5)

    assert alone.due.timestamp() == FAR
