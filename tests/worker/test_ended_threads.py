"""Real workers whose program ends the scanner's thread: they say so, and go on."""

import socket

import pytest

from tests.support.waiting import eventually
from tests.worker.ended import AFTER, AT_START, RAISE
from tests.worker.support import health

MODULE = "tests.worker.ending"
POOLS = {"prefork": ("-P", "prefork", "-c", "1"), "gevent": ("-P", "gevent", "-c", "4")}


@pytest.fixture(scope="module", params=POOLS)
def project(standing, request):
    return standing(*POOLS[request.param], module=MODULE)


def delivered(project):
    task = project.tasks["note"].delay_for(0)
    eventually(lambda: project.runs(task.id))
    return task


@pytest.mark.parametrize("name", ["SystemExit", "CancelledError"])
def test_a_receiver_that_ends_its_thread_keeps_a_task_from_no_queue_and_no_other_receiver(
    project, name
):
    said = len(project.worker.lines)
    project.evidence.rpush(RAISE, name)

    task = delivered(project)

    project.worker.wait_log(
        rf"CRITICAL.*<function ends .* raised {name}\(.*delayq-scanner, which goes on", since=said
    )
    eventually(lambda: task.id.encode() in project.evidence.lrange(AFTER, 0, -1))
    delivered(project)
    assert not any("has ended" in line for line in project.worker.lines[said:])


def test_a_scanner_whose_thread_has_ended_says_why_and_is_started_again(make_project, start_worker):
    project = make_project()
    env = {**project.env, AT_START: "SystemExit"}
    worker = start_worker(MODULE, "-P", "prefork", "-c", "1", env=env)

    worker.wait_log(
        r"CRITICAL.*the thread delayq-scanner has ended: SystemExit\(3\); another one starts"
    )
    worker.wait_log(r"in error_of$|raise error_of")  # the traceback
    delivered(project)

    # A worker without CPU time for its heartbeat may look dead for a moment.
    (scanner,) = eventually(lambda: project.delayq.status().scanners)
    assert scanner.name.startswith(f"{socket.gethostname()}:{worker.pid}:")
    why = "was restarted 1 time, as its thread ended; the log of its process says why"
    told = ["healthy", f"scanner {scanner.name} {why}"]
    eventually(lambda: health(project, "--here") == (0, told))
    assert worker.stop() == 0


@pytest.mark.parametrize("project", ["gevent"], indirect=True)
def test_a_greenlet_that_is_killed_ends_and_another_one_scans(project):
    said = len(project.worker.lines)
    project.evidence.rpush(RAISE, "GreenletExit")

    delivered(project)

    project.worker.wait_log(r"delayq-scanner has ended: GreenletExit\(\)", since=said)
    delivered(project)
