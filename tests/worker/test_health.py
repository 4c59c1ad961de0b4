"""`celery delayq health` beside real workers."""

import json
import socket

import pytest

from tests.support.waiting import eventually
from tests.worker.project import TASKS
from tests.worker.test_revoke import celery

pytestmark = pytest.mark.libraries

SAFETY = 1.0  # seconds
COUNTS_FOR = 3 * SAFETY  # seconds that a heartbeat is valid


def now(project):
    seconds, micros = project.client.time()
    return seconds + micros / 1_000_000


def health(project, *options):
    done = celery(project, "delayq", "health", *options)
    return done.returncode, done.stdout.splitlines()


def test_it_turns_when_the_only_worker_is_killed_as_soon_as_its_heartbeat_is_over(
    make_project, start_worker
):
    project = make_project(delayq_safety_interval=SAFETY)
    worker = start_worker(TASKS, "-P", "solo", env=project.env)
    [scanner] = eventually(lambda: project.delayq.status().scanners)
    assert scanner.name.startswith(f"{socket.gethostname()}:")
    # A worker without CPU time for its heartbeat may look dead for a moment.
    eventually(lambda: health(project) == (0, ["healthy"]))
    eventually(lambda: health(project, "--here") == (0, ["healthy"]))

    worker.kill()
    killed = now(project)
    held = project.tasks["note"].delay_for(0)
    eventually(lambda: now(project) > killed + COUNTS_FOR)

    status, [line] = health(project)
    assert (status, line.partition(":")[0]) == (1, "no scanner is alive")
    assert health(project, "--here") == (
        1,
        [f"no scanner on this host, {socket.gethostname()}, is alive"],
    )
    status, [told] = health(project, "--max-overdue", "0.001", "--json")
    assert status == 1
    _, overdue = json.loads(told)["problems"]
    assert overdue.startswith(f"a task that was due at {held.due:%Y-%m-%d %H:%M:%S} UTC is overdue")


def test_a_worker_that_is_stopped_is_gone_at_once(make_project, start_worker):
    project = make_project(delayq_safety_interval=300.0)
    worker = start_worker(TASKS, "-P", "solo", env=project.env)
    eventually(project.scanners)
    assert project.delayq.health() == []

    assert worker.stop() == 0

    assert project.delayq.health() != []
