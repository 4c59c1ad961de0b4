"""A released task runs in a worker without this package, once, at its due time."""

import itertools
from datetime import datetime

import pytest

from tests.support.waiting import PATIENCE, eventually
from tests.worker.project import TASKS

pytestmark = pytest.mark.libraries

DELAYS = (0.2, 1.0, 2.0)


@pytest.fixture
def plain_worker(start_worker):
    """Start a worker of the same project without this package."""

    def start(project):
        options = ("-P", "prefork", "-c", "2")
        return start_worker("tests.worker.plain", *options, env=project.plain_env, plain=True)

    return start


def test_a_released_task_runs_when_it_is_due_and_once(make_project, plain_worker, broker_conf):
    project = make_project(**broker_conf)
    note, numbers = project.tasks["note"], itertools.count()
    results = [note.delay_for(delay, next(numbers)) for delay in DELAYS * 2]
    kept = note.s(99).set(expires=600, priority=3).delay_for(0.5)

    assert project.delayq.select(all=True).release() == 7
    project.delayq.hand_over()
    assert project.delayq.counts().scheduled == 0
    plain_worker(project)

    for number, result in enumerate([*results, kept]):
        [run] = project.wait_runs(result)
        due = datetime.fromisoformat(run["eta"]).timestamp()
        assert due == pytest.approx(result.due.timestamp(), abs=0.001)
        assert run["at"] >= due
        assert run["args"] == [number if result is not kept else 99]
        assert not run["has_delayq"]
    # The last one was due after all others, so no other one runs again.
    assert [len(project.runs(result)) for result in [*results, kept]] == [1] * 7


@pytest.fixture
def impatient_rabbitmq(rabbitmq_server):
    """A RabbitMQ whose new channels wait two seconds for an acknowledgement."""

    def set_to(timeout, tick):
        said = "application:set_env(rabbit, {}, {})"
        words = (("consumer_timeout", timeout), ("channel_tick_interval", tick))
        rabbitmq_server.control("eval", ", ".join(said.format(*one) for one in words) + ".")

    set_to(2000, 1000)
    yield rabbitmq_server
    set_to(1_800_000, 60_000)


def test_on_rabbitmq_a_plain_worker_that_holds_one_for_too_long_ends(
    make_project, plain_worker, impatient_rabbitmq, server
):
    project = make_project(broker_url=impatient_rabbitmq.url, delayq_url=server.url())
    result = project.tasks["note"].delay_for(3600)
    project.delayq.select(all=True).release()
    project.delayq.hand_over()

    worker = plain_worker(project)

    assert worker.wait(PATIENCE) != 0
    assert any("PreconditionFailed" in line for line in worker.lines)
    with project.app.connection_for_read() as connection:
        message = connection.SimpleQueue(project.queue).get(timeout=PATIENCE)
    assert message.headers["id"] == result.id


@pytest.mark.parametrize("adopts", [None, 1.0])
def test_a_released_task_of_a_worker_s_scanner_waits_in_that_worker(
    make_project, start_worker, adopts
):
    project = make_project(delayq_adopt_after=adopts, delayq_history=100)
    start_worker(TASKS, "-P", "solo", env=project.env)
    # If it is too late for one, the next.
    result = eventually(lambda: released(project, project.tasks["note"].delay_for(2.5)))
    eventually(lambda: not project.delayq.counts().scheduled, message="it left")

    [run] = project.wait_runs(result)

    assert run["at"] >= run["due"] == pytest.approx(result.due.timestamp(), abs=0.001)
    # The worker did not put it back into the store.
    kept = [one.what for one in project.delayq.history() if one.id == result.id]
    assert kept == ["handed_over", "scheduled"]
    assert len(project.runs(result)) == 1


def released(project, result):
    return result if project.delayq.select(all=True).release() == 1 else None
