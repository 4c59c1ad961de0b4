"""A canvas with a due time, through a real worker and a real result backend."""

import celery
import pytest
from celery import chain, chord, group

from tests.support.waiting import PATIENCE
from tests.worker.conftest import each_of

pytestmark = pytest.mark.libraries

TIMEOUT = PATIENCE

project = each_of("crew", "rabbit")


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
