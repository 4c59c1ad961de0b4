"""`celery inspect delayq`, with two real workers."""

import json

import pytest

from tests.support.waiting import PATIENCE, eventually
from tests.worker.project import TASKS
from tests.worker.test_revoke import WITHIN, celery

pytestmark = pytest.mark.libraries


@pytest.fixture(scope="module")
def pair(standing, tmp_path_factory):
    """A project with two workers, with different pools."""
    from tests.support.worker import WorkerProcess

    # On a busy machine, the heartbeats of both are still valid.
    project = standing("-P", "prefork", "-c", "2", delayq_safety_interval=300.0)
    log = tmp_path_factory.mktemp("second") / "worker.log"
    project.second = WorkerProcess(TASKS, "-P", "solo", env=project.env, log=log)
    project.second.wait_ready()
    project.names = sorted([project.worker.name, project.second.name])
    # On Redis a worker that reports "ready" may not have subscribed yet.
    ping = project.app.control.ping
    eventually(lambda: len(ping(destination=project.names, timeout=2)) == 2, timeout=30)
    yield project
    project.second.kill()


def told(pair, *line):
    """Each worker's reply on the command line."""
    command, *rest = line
    done = celery(pair, command, *WITHIN, "-d", ",".join(pair.names), "--json", *rest)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    if isinstance(answers, list):
        answers = {name: answer for one in answers for name, answer in one.items()}
    assert sorted(answers) == pair.names
    return list(answers.values())


def test_each_worker_shows_the_store(pair):
    held = pair.tasks["note"].delay_for(3600)
    first, second = told(pair, "inspect", "delayq")
    # Between two replies a scanner may have sent a heartbeat.
    alive, alive_then = ({one["name"] for one in told.pop("scanners")} for told in (first, second))
    assert first == second
    assert alive == alive_then
    assert (first["scheduled"], len(alive), first["pauses"]) == (1, 2, [])
    assert first["next_due"] == held.due.isoformat()
    assert first["store"] == pair.server.url()
    held.cancel()


def test_the_app_s_control_does_the_same(pair):
    pair.delayq.pause(queue="other")
    shown = pair.app.control.inspect(destination=pair.names, timeout=PATIENCE).delayq()
    assert sorted(shown) == pair.names
    assert [[one["queue"] for one in told["pauses"]] for told in shown.values()] == [["other"]] * 2
    pair.delayq.resume(queue="other")


def test_the_command_line_lists_it(pair):
    assert "delayq " in celery(pair, "inspect", "--list").stdout
