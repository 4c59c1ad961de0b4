"""What the rows say, of tasks in which states and shards; and that nothing is written."""

import tracemalloc

import pytest

from celery_delayq.contrib.preflight.preflight import Preflight
from celery_delayq.core.clock import from_ms
from celery_delayq.errors import StoreUnavailable
from tests.app.support import FAR, LONG_AGO
from tests.preflight.test_calls import one, two
from tests.support.places import take
from tests.support.shards import keys_of

pytestmark = pytest.mark.libraries


def test_a_row_has_how_many_the_first_one_and_what_to_do(old, new):
    for number in (3, 1, 2):
        old.send_task("remind", (number,), task_id=f"r{number}", delayq_at=FAR + number)
    old.send_task("fine", (1,), delayq_at=FAR)
    found = new({"fine": one}).delayq.preflight()

    [row] = found.misfits
    assert (row.count, row.id, row.first_due) == (3, "r1", from_ms((FAR + 1) * 1000))
    assert (row.level, row.sentence) == ("error", "this code has no task of this name")
    assert "edit --task remind --to-task NEW" in row.advice
    assert (found.tasks, found.rules, found.dead) == (4, 0, 0)
    assert not found
    assert found.problems == found.misfits


def test_a_command_of_a_row_is_one_for_a_shell(old, new):
    old.send_task("remind; x", delayq_at=FAR)
    [row] = new().delayq.preflight().misfits
    assert "edit --task 'remind; x' --to-task NEW" in row.advice


def test_of_two_shapes_of_one_task_the_row_says_what_is_wrong_with_the_first(old, new):
    old.send_task("remind", (1, 2, 3), delayq_at=FAR + 1)
    old.send_task("remind", (1,), delayq_at=FAR)

    [row] = new({"remind": two}).delayq.preflight().misfits

    assert row.count == 2
    assert row.sentence == (
        "its arguments do not fit: two() missing 1 required positional argument: 'zone'"
    )


def test_rows_come_by_their_first_due_time(old, look):
    for number, name in enumerate(("late", "soon", "later")):
        old.send_task(name, (1,), delayq_at=FAR + (7, 1, 9)[number])
    assert [name for name, *_ in look()] == ["soon", "late", "later"]


def test_nothing_is_written(old, new, redis):
    old.send_task("remind", (1,), delayq_at=FAR)
    old.send_task("remind", (1,), delayq_at=LONG_AGO)
    delayq = new({"remind": two}).delayq
    before = {key: redis.dump(key) for key in redis.keys("*")}

    assert not delayq.preflight()

    assert {key: redis.dump(key) for key in redis.keys("*")} == before


def test_an_empty_store_is_fine_and_stays_empty(new, redis):
    assert new().delayq.preflight() == Preflight((), 0, 0, 0)
    assert redis.keys("*") == []


def test_a_store_that_is_away_is_an_error(new, url, redis):
    delayq = new(delayq_url="redis://127.0.0.1:1/0", delayq_timeout=0.2).delayq
    with pytest.raises(StoreUnavailable):
        delayq.preflight()


PLACES = {"leased": 1, "refused": 1, "parked": 1, "dead": 0}


@pytest.mark.parametrize(("place", "count"), PLACES.items())
def test_each_state_but_dead_is_looked_at(old, new, place, count):
    old.send_task("remind", (1,), task_id="a", delayq_at=LONG_AGO)
    if place == "parked":
        old.delayq.pause(all=True)
    else:
        take(old.delayq, place, "a")

    found = new().delayq.preflight()

    assert [row.count for row in found.misfits] == [1] * count
    assert (found.tasks, found.dead) == (count, 1 - count)


DAMAGED = {
    "no record": (b"x", "record format"),
    "a later format": (None, "its record has format 2, and this release reads formats up to 1"),
    "cut": (b"1L6:celery", "record is damaged"),
}


@pytest.mark.parametrize(("record", "why"), DAMAGED.values(), ids=DAMAGED)
def test_a_record_that_cannot_be_read_is_a_row(old, new, redis, record, why):
    old.send_task("remind", (1,), task_id="a", delayq_at=FAR)
    old.send_task("remind", (1,), task_id="b", delayq_at=FAR)
    key = keys_of("a")["records"]
    redis.hset(key, "a", record or b"2" + redis.hget(key, "a")[1:])

    found = new({"remind": one}).delayq.preflight()

    [row] = found.misfits
    assert (row.task, row.reason, row.id, row.count) == ("", "unreadable", "a", 1)
    assert why in row.sentence
    assert found.tasks == 2


def test_a_template_that_is_gone_makes_its_entries_unreadable(old, look, redis):
    for number in range(3):
        old.send_task("remind", (number,), task_id=f"a{number}", delayq_at=FAR)
    for number in range(3):
        redis.delete(keys_of(f"a{number}")["templates"])

    found = look({"remind": one})

    # The first one is whole.
    assert [row[:3] for row in found] == [("", "unreadable", "task")]


@pytest.fixture
def many(old):
    """Schedule so many calls of ``remind``, with keywords: ``many(100, lambda n: {...})``."""
    task = old.task(name="remind", shared=False)(one)
    task.__header__ = lambda *_, **__: None

    def many(count, kwargs_of=lambda _: {}):
        items = (((number,), kwargs_of(number)) for number in range(count))
        assert old.delayq.schedule_many(task, items, at=FAR)

    return many


SHAPES = {
    "keywords": (((), {"order": 1}), ((), {"wrong": 1})),
    "numbers of arguments": (((1,), {}), ((1, 2), {})),
}


@pytest.mark.parametrize(("right", "wrong"), SHAPES.values(), ids=SHAPES)
def test_calls_of_one_task_are_told_apart_by_their(old, look, right, wrong):
    for args, kwargs in [right, wrong] * 3:
        old.send_task("remind", args, kwargs, delayq_at=FAR)
    assert look({"remind": one}) == [("remind", "arguments", "task", 3)]


def test_shapes_that_are_not_kept_are_judged_again(many, new, limits):
    """A keyword that is data makes as many shapes as entries."""
    limits(preflight_shapes=10)
    many(300, lambda number: {f"user-{number}": 1})

    [row] = new({"remind": one}).delayq.preflight().misfits

    assert (row.reason, row.count) == ("arguments", 300)


def test_kinds_that_are_not_kept_are_read_again(old, new, limits):
    """Each task and queue makes a kind, and so does each process that schedules."""
    limits(preflight_shapes=2)
    task = old.task(name="remind", shared=False)(one)
    for number in range(40):
        items = [((1,), {}), ((2,), {}), ((3,), {})]
        assert old.delayq.schedule_many(task.s().set(queue=f"q{number}"), items, at=FAR)

    [row] = new().delayq.preflight().misfits

    assert (row.reason, row.count) == ("unregistered", 120)


def test_what_has_no_row_of_its_own_is_counted_in_the_last_one(old, new, limits):
    limits(preflight_rows=3)
    for number in range(10):
        old.send_task(f"gone-{number}", (), delayq_at=FAR + number)

    *rows, last = new().delayq.preflight().misfits

    assert sum(row.count for row in rows) == 3
    assert (last.reason, last.task, last.count, last.level) == ("more", "", 7, "error")
    assert "only 3 rows are told apart" in last.sentence


KWARGS = {"of one shape": lambda _: {}, "each of another shape": lambda number: {f"u{number}": 1}}


@pytest.mark.parametrize("kwargs_of", KWARGS.values(), ids=KWARGS)
def test_memory_does_not_grow_with_the_number_of_tasks(many, new, limits, kwargs_of):
    def peak():
        tracemalloc.start()
        assert not delayq.preflight()
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    limits(preflight_shapes=100)
    delayq = new({"remind": two}).delayq
    many(1_000, kwargs_of)
    peak()
    before = peak()
    many(20_000, kwargs_of)

    assert delayq.counts().scheduled == 21_000
    assert peak() < 1.5 * before


def test_the_result_is_a_value(new, old):
    old.send_task("remind", (1,), delayq_at=FAR)
    delayq = new().delayq
    assert delayq.preflight() == delayq.preflight()
    with pytest.raises(AttributeError):
        delayq.preflight().tasks = 5


# Several shards: each is read, and one row counts the tasks of all.


def test_a_row_counts_the_tasks_of_all_shards(delayq_app, url):
    old = delayq_app(url, delayq_shards=3)
    for number in range(30):
        old.send_task("remind", (1,), task_id=f"r{number}", delayq_at=FAR + number)
    new = delayq_app(url, delayq_shards=3)
    new.task(name="other", shared=False)(one)

    found = new.delayq.preflight()

    [row] = found.misfits
    assert (row.count, row.id, found.tasks) == (30, "r0", 30)
