"""A canvas with a due time, through a real worker and a real result backend."""

from datetime import timedelta

import celery
import pytest
from celery import chain, chord, group
from celery.exceptions import TaskRevokedError

from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.libraries

TIMEOUT = PATIENCE


@pytest.fixture
def add(crew):
    return crew.tasks["add"]


@pytest.fixture
def total(crew):
    return crew.tasks["total"]


def test_a_chain(crew, add):
    result = chain(add.s(1, 2), add.s(3), add.s(4)).delay_for(0.2)
    assert result.get(timeout=TIMEOUT) == 10


def test_a_group(crew, add):
    result = group(add.s(number, number) for number in range(4)).delay_for(0.2)
    assert result.get(timeout=TIMEOUT) == [0, 2, 4, 6]


def test_a_chord(crew, add, total):
    result = chord([add.s(1, 1), add.s(2, 2)], total.s()).delay_for(0.2)
    assert result.get(timeout=TIMEOUT) == 6


@pytest.mark.skipif(celery.VERSION < (5, 5), reason="Celery 5.4's own apply_async never ends it")
def test_a_chord_in_a_chain_in_a_group(crew, add, total):
    nested = group(
        chain(add.s(1, 1), add.s(1)),
        chain(chord([add.s(1, 1), add.s(2, 2)], total.s()), add.s(10)),
    )
    assert nested.delay_for(0.2).get(timeout=TIMEOUT) == [3, 16]


def test_a_chain_of_a_group_and_a_task(crew, add, total):
    result = chain(group(add.s(1, 1), add.s(2, 2)), total.s(), add.s(1)).delay_for(0.2)
    assert result.get(timeout=TIMEOUT) == 7


def test_a_map_and_chunks(crew):
    double = crew.tasks["double"]
    assert double.map([1, 2]).delay_for(0.1).get(timeout=TIMEOUT) == [2, 4]
    chunks = double.chunks([(number,) for number in range(4)], 2).group()
    assert chunks.delay_for(0.1).get(timeout=TIMEOUT) == [[0, 2], [4, 6]]


def test_no_part_runs_before_the_whole_is_due(crew, add):
    result = group(add.s(1, 1), add.s(2, 2)).delay_for(0.4)
    due = result.due.timestamp()
    runs = [run for part in result.results for run in crew.wait_runs(part)]
    assert all(run["at"] >= due for run in runs)


def test_each_part_runs_once(crew, add, total):
    result = chord([add.s(1, 1), add.s(2, 2)], total.s()).delay_for(0.1)
    assert result.get(timeout=TIMEOUT) == 6
    parts = [*result.parent.results, result]
    assert [len(crew.runs(part)) for part in parts] == [1, 1, 1]


def test_a_cancelled_canvas_runs_no_part(crew, add, total):
    result = crew.cancelled(lambda: chord([add.s(1, 1), add.s(2, 2)], total.s()).delay_for(1))
    crew.wait_runs(crew.tasks["note"].delay_until(result.due + timedelta(seconds=0.2)))
    assert [crew.runs(part) for part in result.parent.results] == [[], []]
    with pytest.raises(TaskRevokedError):
        result.get(timeout=TIMEOUT)


def test_a_scheduled_link_runs_when_its_task_is_done(crew, add):
    note = crew.tasks["note"].s()
    linked = note.freeze()
    add.apply_async((1, 2), link=note, delayq_after=0.1)
    [run] = crew.wait_runs(linked)
    assert run["args"] == [3]


def test_a_chain_with_a_link_that_waits_by_itself(crew, add):
    """A later part of a chain has its own delay, so the worker has to schedule it."""
    note = crew.tasks["note"].s().set(delayq_after=0.3)
    result = chain(add.s(1, 2), note).apply_async()
    [run] = crew.wait_runs(result)
    assert run["args"] == [3]
    assert run["at"] >= run["due"]
