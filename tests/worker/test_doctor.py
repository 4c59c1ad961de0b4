"""`celery delayq doctor` beside real workers."""

import contextlib
import json
import re

import pytest

from tests.app.network import Listener
from tests.readme.document import page
from tests.support.waiting import PATIENCE, eventually
from tests.worker.project import TASKS
from tests.worker.test_revoke import celery

pytestmark = pytest.mark.libraries


def test_every_line_is_ok_and_the_status_0_if_all_is_well(make_project, start_worker, start_redis):
    project = make_project(start_redis("--appendonly", "yes"))
    start_worker(TASKS, "-P", "threads", env=project.env)

    def found():
        done = celery(project, "delayq", "doctor", "--json")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        # A worker on a busy machine may be late with its heartbeat, which is an error, and with its
        # answer to the doctor, which is a warning.
        wrong.append([line for line in lines if line["level"] != "ok"])
        return None if wrong[-1] or done.returncode else lines

    lines, wrong = [], []
    with contextlib.suppress(AssertionError):
        lines = eventually(found, timeout=2 * PATIENCE)
    assert lines, wrong[-1]
    assert {line["advice"] for line in lines} == {""}


def test_the_rights_that_are_named_for_celery_are_enough(make_project, start_worker, start_redis):
    [line] = re.findall(r"`(resetchannels .*?)`", page("operate/access-rights").text)
    server = start_redis()
    server.client().execute_command("ACL", "SETUSER", "celery", "on", ">secret", *line.split())
    project = make_project(server, broker_url=server.url().replace("//", "//celery:secret@"))
    worker = start_worker(TASKS, "-P", "threads", env=project.env)

    result = project.tasks["note"].delay_for(0.1)
    assert eventually(lambda: project.runs(result))
    assert worker.running


def hold(_):
    """Accept a connection, and send nothing."""


def test_it_ends_where_store_and_broker_are_a_redis_that_hangs(make_project, start_redis):
    server = start_redis()
    project = make_project(server, delayq_timeout=5)
    server.pause()
    try:
        done = celery(project, "delayq", "doctor", "--json")
    finally:
        server.resume()

    [line] = [json.loads(line) for line in done.stdout.splitlines()]
    assert (line["name"], line["level"]) == ("store", "error")
    assert done.returncode == 1


def test_it_ends_where_the_broker_is_a_silent_port(make_project, start_redis):
    server = start_redis("--appendonly", "yes")
    with Listener(hold) as silent:
        url = f"amqp://127.0.0.1:{silent.port}//"
        project = make_project(server, broker_url=url, delayq_url=server.url())
        project.patience = 5
        done = celery(project, "delayq", "doctor", "--json")

    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert (lines[-1]["name"], lines[-1]["level"]) == ("broker", "error")
    assert done.returncode == 1
