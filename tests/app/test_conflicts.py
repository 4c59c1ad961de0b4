"""Two calls with the same key or id: which task waits, and which answer the other call returns."""

from datetime import timedelta

import pytest
from celery import chord, group, states
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult, GroupResult
from celery.signals import task_revoked

from celery_delayq import AlreadyScheduled, Outcome
from tests.app.conflicts import owed, told, waiting
from tests.app.conftest import app_with_results as app
from tests.app.support import FAR

__all__ = ["app"]


@pytest.fixture
def revoked():
    """The ids for which ``task_revoked`` is sent."""
    ids = []

    def note(request, **_):
        ids.append(request.id)

    task_revoked.connect(note)
    yield ids
    task_revoked.disconnect(note)


@pytest.fixture
def holder(add, delayq):
    return delayq.schedule(add.s(1), at=FAR, key="k")


def test_a_key_that_is_taken_is_refused(add, delayq, holder):
    with pytest.raises(AlreadyScheduled) as caught:
        delayq.schedule(add.s(2), at=FAR, key="k")
    assert caught.value.holder == holder.id
    assert waiting(delayq) == {holder.id: (1,)}


def test_a_call_returns_the_task_that_is_kept(add, delayq, redis, holder, revoked):
    kept = delayq.schedule(add.s(2), at=FAR - 60, key="k", conflict="keep")

    assert (kept.id, kept.due, kept.existed) == (holder.id, holder.due, True)
    assert not holder.existed
    assert waiting(delayq) == {holder.id: (1,)}
    assert redis.info("keyspace").keys() == {"db0"}, "an unknown id leaves no key behind"
    assert revoked == []
    assert kept.cancel()
    assert holder.state == states.REVOKED


def test_a_replaced_task_is_revoked_and_names_its_replacement(add, delayq, redis, holder, revoked):
    new = delayq.schedule(add.s(2), at=FAR + 60, key="k", conflict="replace")

    assert not new.existed
    assert new.due.timestamp() == FAR + 60
    assert waiting(delayq) == {new.id: (2,)}
    assert told(holder.id, add.app) == (states.REVOKED, f"replaced by {new.id}")
    assert revoked == [holder.id]
    assert owed(redis) == 0
    assert holder.cancel() is Outcome.NOT_FOUND
    assert new.cancel()


def test_an_id_that_celery_gave_out_is_revoked_where_another_is_kept(
    add, delayq, redis, holder, revoked
):
    result = add.apply_async((2,), delayq_at=FAR, delayq_key="k", delayq_conflict="keep")

    assert waiting(delayq) == {holder.id: (1,)}
    with pytest.raises(TaskRevokedError) as caught:
        result.get(timeout=30)
    assert str(caught.value) == f"kept {holder.id}"
    assert told(holder.id, add.app)[0] == states.PENDING
    assert revoked == [result.id]
    assert owed(redis) == 0


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


@pytest.mark.operations
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


def test_debounce_puts_it_off_by_max_wait_since_the_first_call_at_most(add, delayq):
    options = {"key": "k", "conflict": "debounce", "max_wait": 60}
    first = delayq.schedule(add.s(1), after=30, **options)
    created = delayq.get(first.id).created

    delayq.schedule(add.s(2), after=3600, **options)

    task = delayq.get(key="k")
    assert (task.args, task.created) == ((2,), created)
    assert timedelta(0) <= task.due - created - timedelta(minutes=1) <= timedelta(milliseconds=1)


# The key of a canvas.


@pytest.mark.libraries
def test_a_kept_task_stands_for_a_canvas(add, delayq, redis, holder):
    for canvas in (group(add.s(2), add.s(3)), add.s(2) | add.s(3), chord([add.s(2)], add.s(3))):
        kept = delayq.schedule(canvas, at=FAR, key="k", conflict="keep")

        assert type(kept.id) is str
        assert (kept.id, kept.existed, kept.due) == (holder.id, True, holder.due)
        assert isinstance(kept, AsyncResult)
        assert not isinstance(kept, GroupResult)
    assert waiting(delayq) == {holder.id: (1,)}
    assert redis.info("keyspace").keys() == {"db0"}


@pytest.mark.libraries
@pytest.mark.parametrize("conflict", ["keep", "replace"])
def test_all_parts_of_a_canvas_that_gives_way_are_revoked(app, add, delayq, conflict):
    canvas = group(add.s(2), add.s(3))
    parts = canvas.freeze().results
    first, second = (canvas, add.s(1) | add.s(2))[:: 1 if conflict == "replace" else -1]
    delayq.schedule(first, at=FAR, key="k")

    stays = delayq.schedule(second, at=FAR, key="k", conflict=conflict).id

    why = f"replaced by {stays}" if conflict == "replace" else f"kept {stays}"
    assert [told(part.id, app) for part in parts] == [(states.REVOKED, why)] * 2
    assert list(waiting(delayq)) == [stays]
