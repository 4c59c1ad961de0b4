"""Several shards: each is read, and one row counts the tasks of all."""

import pytest

from tests.app.support import FAR
from tests.preflight.test_calls import one

pytestmark = pytest.mark.libraries


def test_a_row_counts_the_tasks_of_all_shards(delayq_app, url):
    old = delayq_app(url, delayq_shards=3)
    for number in range(30):
        old.send_task("remind", (1,), task_id=f"r{number}", delayq_at=FAR + number)
    new = delayq_app(url, delayq_shards=3)
    new.task(name="other", shared=False)(one)

    found = new.delayq.preflight()

    [row] = found.misfits
    assert (row.count, row.id, found.tasks) == (30, "r0", 30)
