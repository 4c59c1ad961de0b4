"""Redis goes away before or during a bulk: the error raised, and the tasks scheduled."""

import pytest
from kombu.exceptions import OperationalError

from celery_delayq.core import clock
from tests.app.bulk import plain_task
from tests.app.support import FAR, LONG_AGO, lists
from tests.support.shards import total
from tests.support.waiting import PATIENCE


@pytest.fixture(autouse=True)
def small_slices(limits):
    """Slices of five, so that each is one packet of the network."""
    limits(bulk_slice=5)


def slices(*names):
    """Items with custom ids: a slice for each name; the first item of the slice has that name."""
    for place, name in enumerate(names):
        yield (5 * place,), {}, None, name
        for number in range(5 * place + 1, 5 * place + 5):
            yield (number,), {}, None, f"id-{number}"


@pytest.mark.parametrize(
    ("options", "attempts"), [({}, 4), ({"retry_policy": {"max_retries": 2}}, 3)], ids=repr
)
def test_as_many_attempts_are_made_as_the_policy_allows(through, hanging_up, options, attempts):
    app = through(hanging_up)

    with pytest.raises(OperationalError) as caught:
        app.delayq.schedule_many(plain_task(app).s().set(**options), slices("a"), at=FAR)

    assert hanging_up.connections == attempts
    assert (caught.value.so_far.ids, caught.value.so_far.refused) == ([], {})


def test_the_error_says_where_a_caller_can_go_on(through, swallowing, redis, monkeypatch):
    proxy = swallowing(b"the-second", times=99)  # in no script
    app = through(proxy, delayq_timeout=PATIENCE)
    items, task = [*slices("first", "the-second", "third")], plain_task(app)
    now = clock.monotonic

    with monkeypatch.context() as patch:
        # The call ends once its reply was lost, and not before.
        patch.setattr(clock, "monotonic", lambda: now() + 3600 * bool(proxy.swallowed))
        with pytest.raises(OperationalError) as caught:
            app.delayq.schedule_many(task, items, at=FAR)
    proxy.relent()
    rest = app.delayq.schedule_many(task, items[len(caught.value.so_far.ids) :], at=FAR)

    assert len(caught.value.so_far.ids) == 5
    # The reply was lost, but the slice was not: custom ids show it.
    assert [*rest.refused] == [*range(5)]
    assert total(redis.hlen, "records") == 15


@pytest.mark.parametrize("slice_", ["first", "second", "third"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_slice_whose_answer_was_lost_is_repeated_and_scheduled_once(
    through, swallowing, redis, slice_, times
):
    proxy = swallowing(slice_.encode(), times)
    app = through(proxy)

    made = app.delayq.schedule_many(
        plain_task(app), slices("first", "second", "third"), at=LONG_AGO
    )

    assert proxy.swallowed == times
    assert (made.scheduled, made.refused) == (15, {})
    assert total(redis.zcard, "due") == total(redis.hlen, "records") == 15
    assert app.delayq.hand_over() == 15
    assert sum(map(len, lists(redis).values())) == 15
