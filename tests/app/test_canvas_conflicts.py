"""Key conflicts of a canvas: its key is already taken, or another task takes it."""

import pytest
from celery import chord, group, states
from celery.result import AsyncResult, GroupResult

from tests.app.conflicts import told, waiting
from tests.app.support import FAR

pytestmark = pytest.mark.libraries


@pytest.fixture
def app(app_with_results):
    return app_with_results


def test_a_kept_task_stands_for_a_canvas(app, add, delayq, redis):
    holder = delayq.schedule(add.s(1), at=FAR, key="k")

    for canvas in (group(add.s(2), add.s(3)), add.s(2) | add.s(3), chord([add.s(2)], add.s(3))):
        kept = delayq.schedule(canvas, at=FAR, key="k", conflict="keep")

        assert type(kept.id) is str
        assert (kept.id, kept.existed, kept.due) == (holder.id, True, holder.due)
        assert isinstance(kept, AsyncResult)
        assert not isinstance(kept, GroupResult)
    assert waiting(delayq) == {holder.id: (1,)}
    assert redis.info("keyspace").keys() == {"db0"}


def test_parts_whose_ids_somebody_has_are_revoked_where_their_canvas_is_not_kept(app, add, delayq):
    holder = delayq.schedule(add.s(1), at=FAR, key="k")
    canvas = group(add.s(2), add.s(3))
    frozen = canvas.freeze()

    delayq.schedule(canvas, at=FAR, key="k", conflict="keep")

    assert [told(part.id, app) for part in frozen.results] == [
        (states.REVOKED, f"kept {holder.id}")
    ] * 2


def test_all_parts_of_a_replaced_canvas_are_revoked(app, add, delayq):
    first = delayq.schedule(group(add.s(1), add.s(2)), at=FAR, key="k")

    second = delayq.schedule(add.s(2) | add.s(3), at=FAR, key="k", conflict="replace")

    assert [told(part.id, app) for part in first.results] == [
        (states.REVOKED, f"replaced by {second.id}")
    ] * 2
    assert list(waiting(delayq)) == [second.id]
