"""`celery inspect delayq`, `celery control delayq_pause` and the like, with two real workers."""

import json

import pytest

from celery_delayq import State
from tests.support.waiting import eventually
from tests.worker.project import TASKS
from tests.worker.test_revoke import celery

pytestmark = pytest.mark.libraries

WITHIN = ("-t", "10")


@pytest.fixture(scope="module")
def pair(standing, tmp_path_factory):
    """A project with two workers, under different pools."""
    from tests.support.worker import WorkerProcess

    project = standing("-P", "prefork", "-c", "2")
    log = tmp_path_factory.mktemp("second") / "worker.log"
    project.second = WorkerProcess(TASKS, "-P", "solo", env=project.env, log=log)
    project.second.wait_ready()
    project.names = sorted([project.worker.name, project.second.name])
    # On Redis a worker that says that it is ready may not have subscribed yet.
    ping = project.app.control.ping
    eventually(lambda: len(ping(destination=project.names, timeout=2)) == 2, timeout=30)
    yield project
    project.second.kill()


def told(pair, *line):
    """What each worker answers on the command line."""
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
    # Between two answers a scanner may have given a heartbeat.
    alive, alive_then = ({one["name"] for one in told.pop("scanners")} for told in (first, second))
    assert first == second
    assert alive == alive_then
    assert (first["scheduled"], len(alive), first["pauses"]) == (1, 2, [])
    assert first["next_due"] == held.due.isoformat()
    assert first["store"] == pair.server.url()
    held.cancel()


def test_a_queue_is_paused_and_resumed_on_the_command_line(pair):
    lane = f"queue={pair.queue}"
    assert (
        told(pair, "control", "delayq_pause", lane, "late=true")
        == [{"ok": f"queue {pair.queue} is paused"}] * 2
    )
    held = pair.tasks["note"].delay_for(0)
    eventually(lambda: pair.delayq.state(held.id) is State.PAUSED)
    [pause] = told(pair, "inspect", "delayq")[0]["pauses"]
    assert (pause["queue"], pause["late"], pause["parked"]) == (pair.queue, True, 1)
    assert pair.runs(held) == []
    answers = told(pair, "control", "delayq_resume", lane, "rate=50")
    assert {"ok": f"queue {pair.queue} is resumed"} in answers
    assert all("ok" in one for one in answers)
    pair.wait_runs(held)


def test_wrong_words_are_a_sentence_and_no_traceback(pair):
    for answer in told(pair, "control", "delayq_pause", pair.queue):
        assert answer["error"].startswith(f"argument is '{pair.queue}'; expected queue=…")
    for worker in (pair.worker, pair.second):
        assert not any("Traceback" in line for line in worker.lines)
    assert pair.delayq.pauses() == []


def test_the_app_s_control_does_the_same(pair):
    control = pair.app.control
    note = pair.tasks["note"]
    answers = control.delayq_pause(task=note, destination=pair.names, reply=True, timeout=10)
    assert [*map(list, map(dict.values, answers))] == [[{"ok": f"task {note.name} is paused"}]] * 2
    held = note.delay_for(0)
    eventually(lambda: pair.delayq.state(held.id) is State.PAUSED)
    shown = control.inspect(destination=pair.names, timeout=10).delayq()
    assert sorted(shown) == pair.names
    assert [one["task"] for one in shown[pair.names[0]]["pauses"]] == [note.name]
    assert control.delayq_resume(task=note, destination=pair.names[:1]) is None
    pair.wait_runs(held)


def test_the_command_line_lists_them(pair):
    assert "delayq " in celery(pair, "inspect", "--list").stdout
    listed = celery(pair, "control", "--list").stdout
    assert "delayq_pause [queue=QUEUE|task=TASK] [late=true]" in listed
    assert "delayq_resume [queue=QUEUE|task=TASK] [rate=TASKS_A_SECOND]" in listed
