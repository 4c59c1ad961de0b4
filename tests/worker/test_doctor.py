"""`celery delayq doctor` beside real workers."""

import json
import re
import threading
import time

import pytest
import time_machine

from celery_delayq.doctor.clocks import workers
from celery_delayq.doctor.patient import Patient
from celery_delayq.doctor.rights import rights
from tests.app.network import Listener
from tests.readme.document import OPERATIONS
from tests.support.waiting import PATIENCE, eventually
from tests.worker.project import TASKS
from tests.worker.test_revoke import celery

pytestmark = pytest.mark.libraries


def test_where_all_is_well_every_line_is_ok_and_the_status_0(
    make_project, start_worker, start_redis
):
    project = make_project(start_redis("--appendonly", "yes"))
    start_worker(TASKS, "-P", "threads", env=project.env)

    def found():
        done = celery(project, "delayq", "doctor", "--json")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        # A worker of a busy machine may be late with its answer, and with its heartbeat.
        answered = lines[-1]["found"] == "those of 1 that answered agree with this machine's"
        return (done.returncode, lines) if answered and done.returncode == 0 else None

    _, lines = eventually(found, timeout=40)
    assert {line["level"] for line in lines} == {"ok"}
    assert {line["advice"] for line in lines} == {""}


def test_a_worker_whose_clock_is_wrong_is_named(make_project, start_worker, start_redis):
    project = make_project(start_redis())
    start_worker(TASKS, "-P", "threads", "-n", "far@here", env=project.env)
    patient = Patient(project.delayq.services)

    def warned():
        with time_machine.travel(time.time() + 3600, tick=True):
            [line] = workers(patient)
        return line if line.level == "warning" else None

    line = eventually(warned)
    patient.close()

    seconds = re.fullmatch(
        r"that of far@here is ([\d,.]+) s behind this machine's: due times go by Redis's clock "
        "alone; but a captured eta is computed by a caller's, and expires is judged by a worker's",
        line.found,
    )[1]
    assert 3540 < float(seconds.replace(",", "")) <= 3600
    assert line.advice == "let both machines take their time from NTP"


def test_workers_that_hand_nothing_over_are_asked_as_well(make_project, start_worker, start_redis):
    server = start_redis()
    project = make_project(server)
    start_worker(TASKS, "-P", "threads", "-n", "one@here", env=project.env)
    start_worker(TASKS, "-P", "threads", "-n", "two@here", "--no-delayq", env=project.env)
    patient = Patient(project.delayq.services)
    eventually(lambda: len(project.delayq.services.entries.scanners()) == 1)

    [told] = eventually(lambda: [one for one in workers(patient) if "of 2 that" in one.found])
    patient.close()

    assert told.level == "ok"
    # The queue of the answers is not closed while somebody still answers.
    assert not [*server.client().scan_iter("*.reply.celery.pidbox")]


def test_where_no_worker_answers_nothing_is_known(make_project, start_redis):
    project = make_project(start_redis())
    patient = Patient(project.delayq.services)

    [line] = workers(patient)
    patient.close()

    assert (line.level, line.found) == ("ok", "not known, as none answered within 1 s")


def test_the_rights_that_are_named_for_celery_are_enough(make_project, start_worker, start_redis):
    [line] = re.findall(r"`(resetchannels .*?)`", OPERATIONS.parts("Access rights"))
    server = start_redis()
    server.client().execute_command("ACL", "SETUSER", "celery", "on", ">secret", *line.split())
    project = make_project(server, broker_url=server.url().replace("//", "//celery:secret@"))
    worker = start_worker(TASKS, "-P", "threads", env=project.env)
    patient = Patient(project.delayq.services)

    result = project.tasks["note"].delay_for(0.1)
    assert eventually(lambda: project.runs(result))
    [told] = eventually(lambda: [one for one in workers(patient) if "1 that" in one.found])
    assert [one.level for one in rights(patient)] == ["ok"]
    patient.close()
    assert told.level == "ok"
    assert worker.running


def hold(_):
    """Take a connection, and say nothing."""


def test_it_ends_where_store_and_broker_are_a_redis_that_hangs(make_project, start_redis):
    server = start_redis()
    project = make_project(server)
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
        done = celery(project, "delayq", "doctor", "--json")

    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert (lines[-1]["name"], lines[-1]["level"]) == ("broker", "error")
    assert done.returncode == 1


def test_a_broker_that_hangs_since_it_was_looked_at_is_not_waited_for(make_project, start_redis):
    server = start_redis()
    with Listener(hold) as silent:
        url = f"amqp://127.0.0.1:{silent.port}//"
        project = make_project(server, broker_url=url, delayq_url=server.url())
        patient = Patient(project.delayq.services)
        began = time.monotonic()
        [line] = workers(patient)
        took = time.monotonic() - began
        patient.close()

    assert line.level == "warning"
    assert line.found.startswith("not known, as no worker can be asked: ")
    assert line.advice
    assert took < PATIENCE


def test_nor_is_what_celery_waits_for_itself(make_project, start_redis, monkeypatch):
    project, over = make_project(start_redis()), threading.Event()
    monkeypatch.setattr("celery_delayq.doctor.clocks.SENT_WITHIN", 0.5)
    monkeypatch.setattr(project.app.control, "broadcast", lambda *_, **__: over.wait(60))
    patient = Patient(project.delayq.services)

    [line] = workers(patient)
    over.set()
    patient.close()

    assert line.level == "warning"
    assert line.found == "not known, as no worker can be asked: no answer within 1.5 s"
