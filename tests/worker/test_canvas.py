"""A canvas with a due time, through a real worker and a real result backend."""

import celery
import pytest
from celery import chain, chord, group

from tests.support.waiting import PATIENCE
from tests.worker.conftest import each_of

pytestmark = pytest.mark.libraries

TIMEOUT = PATIENCE

project = each_of("crew", "rabbit")


@pytest.fixture
def add(crew):
    return crew.tasks["add"]


@pytest.fixture
def total(crew):
    return crew.tasks["total"]


class Parts:
    """Signatures of the tasks of a project: ``parts.add(1, 2)``."""

    def __init__(self, project):
        self._tasks = project.tasks

    def __getattr__(self, name):
        return self._tasks[name].s


NESTED = pytest.mark.skipif(
    celery.VERSION < (5, 5), reason="Celery 5.4's own apply_async never ends it"
)


@pytest.mark.parametrize(
    ("make", "result"),
    [
        pytest.param(lambda p: chain(p.add(1, 2), p.add(3), p.add(4)), 10, id="chain"),
        pytest.param(lambda p: group(p.add(n, n) for n in range(4)), [0, 2, 4, 6], id="group"),
        pytest.param(lambda p: chord([p.add(1, 1), p.add(2, 2)], p.total()), 6, id="chord"),
        pytest.param(
            lambda p: group(
                chain(p.add(1, 1), p.add(1)),
                chain(chord([p.add(1, 1), p.add(2, 2)], p.total()), p.add(10)),
            ),
            [3, 16],
            id="chord in a chain in a group",
            marks=NESTED,
        ),
        pytest.param(
            lambda p: chain(group(p.add(1, 1), p.add(2, 2)), p.total(), p.add(1)),
            7,
            id="chain of a group and a task",
        ),
        pytest.param(lambda p: p.double.__self__.map([1, 2]), [2, 4], id="map"),
        pytest.param(
            lambda p: p.double.__self__.chunks([(n,) for n in range(4)], 2).group(),
            [[0, 2], [4, 6]],
            id="chunks",
        ),
    ],
)
def test_a_canvas_has_its_result(project, make, result):
    assert make(Parts(project)).delay_for(0.1).get(timeout=TIMEOUT) == result


def test_each_part_runs_once(crew, add, total):
    result = chord([add.s(1, 1), add.s(2, 2)], total.s()).delay_for(0.1)
    assert result.get(timeout=TIMEOUT) == 6
    parts = [*result.parent.results, result]
    assert [len(crew.runs(part)) for part in parts] == [1, 1, 1]


def test_a_scheduled_link_runs_when_its_task_is_done(crew, add):
    note = crew.tasks["note"].s()
    linked = note.freeze()
    add.apply_async((1, 2), link=note, delayq_after=0.1)
    [run] = crew.wait_runs(linked)
    assert run["args"] == [3]


def test_a_later_part_of_a_chain_with_a_delay_of_its_own_waits_by_itself(crew, add):
    result = chain(add.s(1, 2), crew.tasks["note"].s().set(delayq_after=0.3)).apply_async()
    [run] = crew.wait_runs(result)
    assert run["args"] == [3]
    assert run["at"] >= run["due"]
