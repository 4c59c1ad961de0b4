"""`celery inspect`, `delayq doctor` and `delayq health` beside real workers."""

import contextlib
import json
import re
import socket

import pytest

from tests.readme.document import page
from tests.support.network import Listener
from tests.support.waiting import PATIENCE, eventually
from tests.support.worker import WorkerProcess
from tests.worker.project import TASKS
from tests.worker.support import WITHIN, celery, health

pytestmark = pytest.mark.libraries

SAFETY = 1.0  # seconds
COUNTS_FOR = 3 * SAFETY  # seconds that a heartbeat is valid


@pytest.fixture(scope="module")
def pair(standing, tmp_path_factory):
    """A project with two workers, with different pools."""
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


def inspected(project, *command):
    """The reply of each worker on the command line."""
    names = getattr(project, "names", [project.worker.name])
    done = celery(project, "inspect", *WITHIN, "-d", ",".join(names), "--json", *command)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    if isinstance(answers, list):
        answers = {name: answer for one in answers for name, answer in one.items()}
    assert sorted(answers) == names
    return [answers[name] for name in names]


def test_inspect_delayq_shows_the_store_as_each_worker_sees_it(pair):
    held = pair.tasks["note"].delay_for(3600)
    first, second = inspected(pair, "delayq")
    # Between two replies a scanner may have sent a heartbeat.
    alive, alive_then = ({one["name"] for one in told.pop("scanners")} for told in (first, second))
    assert first == second
    assert alive == alive_then
    assert (first["scheduled"], len(alive), first["pauses"]) == (1, 2, [])
    assert first["next_due"] == held.due.isoformat()
    assert first["store"] == pair.server.url()
    held.cancel()


def test_inspect_scheduled_shows_waiting_tasks(crew):
    result = crew.tasks["note"].s(1, "two").set(priority=3).delay_for(3600)

    [shown] = inspected(crew, "scheduled")

    [one] = [one for one in shown if one["request"]["id"] == result.id]
    assert one["eta"] == result.due.isoformat()
    assert one["request"]["name"] == "note"
    assert one["request"]["args"] == "(1, 'two')"
    assert one["request"]["delivery_info"]["routing_key"] == crew.queue
    result.cancel()


def test_inspect_query_task_shows_a_task_where_it_waits_on_the_command_line_and_by_the_app(crew):
    result = crew.tasks["note"].s(1, "two").delay_for(3600)

    [named] = inspected(crew, "query_task", result.id)
    inspect = crew.app.control.inspect([crew.worker.name], timeout=PATIENCE)
    [state, shown] = inspect.query_task(result.id)[crew.worker.name][result.id]

    assert named == {result.id: [state, shown]}
    assert (state, shown["name"], shown["args"]) == ("scheduled", "note", "(1, 'two')")
    result.cancel()


# The doctor.


def doctor(project):
    """The exit status of `delayq doctor`, and its lines."""
    done = celery(project, "delayq", "doctor", "--json")
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_every_line_is_ok_and_the_status_0_if_all_is_well(make_project, start_worker, start_redis):
    project = make_project(start_redis("--appendonly", "yes"))
    start_worker(TASKS, "-P", "threads", env=project.env)

    def found():
        status, lines = doctor(project)
        # A worker on a busy machine may be late with its heartbeat, which is an error, and with its
        # answer to the doctor, which is a warning.
        wrong.append([line for line in lines if line["level"] != "ok"])
        return None if wrong[-1] or status else lines

    lines, wrong = [], []
    with contextlib.suppress(AssertionError):
        lines = eventually(found, timeout=2 * PATIENCE)
    assert lines, wrong[-1]
    assert {line["advice"] for line in lines} == {""}


def test_the_rights_that_are_named_for_celery_are_enough(make_project, start_worker, start_redis):
    [line] = re.findall(r"`(resetchannels .*?)`", page("operate/redis").text)
    server = start_redis()
    server.client().execute_command("ACL", "SETUSER", "celery", "on", ">secret", *line.split())
    project = make_project(server, broker_url=server.url().replace("//", "//celery:secret@"))
    worker = start_worker(TASKS, "-P", "threads", env=project.env)

    result = project.tasks["note"].delay_for(0.1)
    assert eventually(lambda: project.runs(result))
    assert worker.running


def test_the_doctor_ends_where_store_and_broker_are_a_redis_that_hangs(make_project, start_redis):
    server = start_redis()
    project = make_project(server, delayq_timeout=5)
    server.pause()
    try:
        status, [line] = doctor(project)
    finally:
        server.resume()

    assert (line["name"], line["level"], status) == ("store", "error", 1)


def test_the_doctor_ends_where_the_broker_is_a_silent_port(make_project, start_redis):
    server = start_redis("--appendonly", "yes")
    with Listener(lambda _: None) as silent:
        url = f"amqp://127.0.0.1:{silent.port}//"
        project = make_project(server, broker_url=url, delayq_url=server.url())
        project.patience = 5
        status, [*_, last] = doctor(project)

    assert (last["name"], last["level"], status) == ("broker", "error", 1)


# Health.


def test_health_turns_when_the_only_worker_is_killed_as_soon_as_its_heartbeat_is_over(
    make_project, start_worker
):
    def now():
        seconds, micros = project.client.time()
        return seconds + micros / 1_000_000

    project = make_project(delayq_safety_interval=SAFETY)
    worker = start_worker(TASKS, "-P", "solo", env=project.env)
    # A worker without CPU time for its heartbeat may look dead for a moment.
    eventually(lambda: health(project) == (0, ["healthy"]))
    eventually(lambda: health(project, "--here") == (0, ["healthy"]))

    worker.kill()
    killed = now()
    held = project.tasks["note"].delay_for(0)
    eventually(lambda: now() > killed + COUNTS_FOR)

    status, [line] = health(project)
    assert (status, line.partition(":")[0]) == (1, "no scanner is alive")
    nobody = f"no scanner on this host, {socket.gethostname()}, is alive"
    assert health(project, "--here") == (1, [nobody])
    status, [told] = health(project, "--max-overdue", "0.001", "--json")
    assert status == 1
    _, overdue = json.loads(told)["problems"]
    assert overdue.startswith(f"a task that was due at {held.due:%Y-%m-%d %H:%M:%S} UTC is overdue")
