"""A bulk is read, held and forgotten slice by slice, so that it may be of any length."""

import tracemalloc

import pytest

from celery_delayq import AlreadyScheduled
from tests.app.bulk import plain_task
from tests.app.support import FAR
from tests.support.shards import total


@pytest.fixture
def remind(app):
    return plain_task(app)


@pytest.fixture
def connections(redis):
    """The number of connections that Redis has received."""
    return lambda: redis.info("stats")["total_connections_received"]


def numbered(count):
    return (((number,), {}) for number in range(count))


def test_no_items_are_no_step_at_all(remind, delayq, connections):
    progress, before = [], connections()

    bulk = delayq.schedule_many(remind, iter(()), at=FAR, progress=progress.append)

    assert (bulk.ids, bulk.refused, bulk.scheduled) == ([], {}, 0)
    assert progress == []
    assert connections() == before


def test_items_that_are_all_refused_are_no_step_either(remind, delayq, connections):
    before = connections()

    delayq.schedule_many(remind, [((), {}, "soon")] * 300, at=FAR)

    assert connections() == before


def test_a_slice_is_scheduled_before_the_next_one_is_read(remind, delayq, redis):
    held_when_read = []

    def items():
        for item in numbered(450):
            held_when_read.append(total(redis.hlen, "records"))
            yield item

    delayq.schedule_many(remind, items(), at=FAR)

    assert held_when_read == [0] * 200 + [200] * 200 + [400] * 50


def test_progress_is_told_after_each_slice_what_has_become_of_it(remind, delayq):
    told = []

    def progress(bulk):
        told.append((len(bulk.ids), bulk.scheduled, delayq.counts().scheduled))

    items = [*numbered(210), *[None] * 210, *numbered(30)]
    delayq.schedule_many(remind, items, at=FAR, progress=progress)

    assert told == [(200, 200, 200), (400, 210, 210), (450, 240, 240)]


def test_progress_is_given_the_bulk_that_is_returned(remind, delayq):
    told = []

    bulk = delayq.schedule_many(remind, numbered(201), at=FAR, progress=told.append)

    assert [id(one) for one in told] == [id(bulk)] * 2


@pytest.mark.parametrize("slices", [1, 2])
def test_an_error_that_progress_raises_ends_the_bulk_after_a_whole_slice(remind, delayq, slices):
    told = []

    def progress(bulk):
        told.append(bulk)
        if len(told) == slices:
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        delayq.schedule_many(remind, numbered(900), at=FAR, progress=progress)

    assert delayq.counts().scheduled == told[0].scheduled == len(told[0].ids) == 200 * slices


@pytest.mark.parametrize("error", [ValueError, AlreadyScheduled, KeyboardInterrupt])
def test_an_error_of_the_items_ends_the_bulk_and_what_was_scheduled_stays(remind, delayq, error):
    told = []

    def items():
        yield from numbered(250)
        raise error("of the items")

    with pytest.raises(error):
        delayq.schedule_many(remind, items(), at=FAR, progress=told.append)

    assert delayq.counts().scheduled == 200
    assert [*map(delayq.state, told[0].ids)] == ["SCHEDULED"] * 200


def test_items_that_are_none_are_the_call_s_error(remind, delayq, redis):
    with pytest.raises(TypeError):
        delayq.schedule_many(remind, None, at=FAR)
    assert redis.keys() == []


def test_large_messages_are_scheduled_in_smaller_slices(remind, delayq):
    delayq.app.conf.delayq_max_message = 2_000_000
    told = []
    megabyte = (("x" * 1_000_000,), {})
    small = ((1,), {})

    delayq.schedule_many(
        remind,
        [megabyte, megabyte, small, small, megabyte, *[(("y" * 100_000,), {})] * 7],
        at=FAR,
        progress=lambda bulk: told.append(bulk.scheduled),
    )

    # In base64, 100,000 bytes are 133,000: three of them are a slice.
    assert told == [1, 2, 4, 5, 8, 11, 12]
    assert delayq.counts().scheduled == 12


def test_a_bulk_keeps_its_ids_and_nothing_else(remind, delayq):
    delayq.schedule_many(remind, numbered(1000), at=FAR)
    tracemalloc.start()
    try:
        bulk = delayq.schedule_many(remind, numbered(5000), at=FAR)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # A text of 36 characters and a place in a list take some 93 bytes; a scheduled task, 1,500.
    assert bulk.scheduled == 5000
    assert kept < 5000 * 120
    assert peak - kept < 2_000_000
