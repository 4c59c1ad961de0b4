"""A scheduled task through a real worker, with every pool."""

import pytest

from tests.support.waiting import PATIENCE, eventually
from tests.worker.project import TASKS

pytestmark = [pytest.mark.core, pytest.mark.libraries]


def test_a_task_runs_once_never_early_as_it_was_sent_and_sees_when_it_was_due(pool):
    note = pool.tasks["note"]
    results = [note.s(delay).set(priority=6).delay_for(delay) for delay in (0.3, 0.6, 0.05)]
    at_once = note.delay()
    for result in results:
        [run] = pool.wait_runs(result)
        assert run["at"] >= run["due"] == pytest.approx(result.due.timestamp(), abs=0.0001)
        assert (run["queue"], run["priority"], run["eta"]) == (pool.queue, 6, None)
    assert [len(pool.runs(result)) for result in results] == [1, 1, 1]
    [run] = pool.wait_runs(at_once)
    assert run["due"] is None


def test_from_rabbitmq_a_task_runs_once_and_never_early_as_its_first_attempt(rabbit):
    results = [rabbit.tasks["note"].delay_for(delay, delay) for delay in (0.3, 0.1)]
    for result in results:
        [run] = rabbit.wait_runs(result)
        assert run["at"] >= run["due"] == pytest.approx(result.due.timestamp(), abs=0.0001)
        assert (run["attempt"], run["redelivered"], run["queue"]) == (1, None, rabbit.queue)
    assert [len(rabbit.runs(result)) for result in results] == [1, 1]


def test_a_task_that_blocks_the_worker_does_not_hold_up_the_scanner(pool):
    """In a solo pool the task runs in the worker's own thread."""
    held = [pool.tasks["hold"].delay(2 * PATIENCE) for _ in range(2)]
    for result in held:
        if pool.pool != "solo" or result is held[0]:
            pool.wait_runs(result)
    late = pool.tasks["note"].delay_for(0.1)
    eventually(lambda: pool.delayq.get(late.id) is None)
    for result in held:
        pool.let_go(result)
    pool.wait_runs(late)


@pytest.mark.parametrize("options", [("-Q", "other"), ("-Q", "other", "--autoscale", "2,1")])
def test_a_task_for_a_named_queue_reaches_its_worker(make_project, start_worker, options):
    project = make_project()
    start_worker(TASKS, *options, env=project.env)
    result = project.tasks["note"].s(7).set(queue="other").delay_for(0.1)
    [run] = project.wait_runs(result)
    assert (run["queue"], run["args"]) == ("other", [7])
