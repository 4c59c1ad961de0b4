"""A worker's start: its scanner, one line on its store, or one sentence if it cannot start."""

import pytest
from celery import Celery

from celery_delayq import DelayQ
from celery_delayq.core.store.keys import SCHEMA
from tests.support.forked import PythonProcess
from tests.support.ports import free_port
from tests.support.waiting import eventually
from tests.support.worker import ROOT
from tests.worker.project import TASKS
from tests.worker.support import celery

pytestmark = [pytest.mark.core, pytest.mark.libraries]

NO_DATABASE = (
    "delayq_url is 'redis://h/x'; expected a URL that names its database by a number, such as "
    "redis://host:6379/0"
)

UNKNOWN = "there is no setting delayq_batchsize; did you mean delayq_batch_size?"
DIFFERS = (
    f"the store has layout '999', this process '{SCHEMA}'; give it a delayq_prefix of its own, or "
    "make all processes agree"
)


# It cannot start.


@pytest.fixture
def start(tmp_path):
    """Start a program of a project: `celery -A tests.worker.tasks ...`."""
    started = []

    def start(project, program):
        words = program.replace("FOLDER", str(tmp_path)).split()
        line = ("-m", "celery", "-A", TASKS, *words)
        log = tmp_path / "program.log"
        started.append(PythonProcess(*line, log=log, env=project.env, cwd=ROOT))
        return started[-1]

    yield start
    for one in started:
        one.kill()


BEAT = "beat -l INFO -s FOLDER/schedule"
SCAN = pytest.param("delayq scan", marks=pytest.mark.operations)


def ended(process, sentence):
    """Check that it ended with status 1, and printed this sentence once."""
    assert process.wait() == 1
    assert sum(sentence in line for line in process.lines) == 1, process.tail()
    assert not any("Traceback" in line for line in process.lines)


@pytest.mark.parametrize(
    ("program", "conf", "sentence"),
    [
        ("worker -P gevent", {"delayq_url": "redis://h/x"}, NO_DATABASE),
        ("worker -P prefork", {"delayq_batchsize": 5}, UNKNOWN),
        (BEAT, {"delayq_batchsize": 5}, UNKNOWN),
    ],
)
def test_a_wrong_setting_is_a_sentence(make_project, start, program, conf, sentence):
    project = make_project()
    project.conf.update(conf)
    ended(start(project, program), sentence)


@pytest.mark.operations
def test_a_command_prints_a_wrong_setting_and_nothing_else(make_project):
    done = celery(make_project(delayq_batchsize=5), "delayq", "scan")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: {UNKNOWN}\n"


@pytest.mark.parametrize("program", ["worker -P prefork -c 2", "worker -P gevent -c 2", BEAT, SCAN])
def test_a_store_of_another_kind_is_a_sentence(make_project, start, program):
    project = make_project()
    # No process of this version may use it.
    meta = project.delayq.services.scripts[0].keys["meta"]
    project.client.hset(meta, mapping={"schema": "999", "shards": "1"})
    project.tasks["note"].apply_async()
    ended(start(project, program), DIFFERS)
    assert project.queued() == 1  # it took no task


def test_a_worker_in_the_background_says_it_in_its_log(make_project, tmp_path):
    project = make_project(delayq_batchsize=5)
    log, pid = tmp_path / "worker.log", tmp_path / "worker.pid"
    begun = celery(
        project, "multi", "start", "w1", "-A", TASKS, "-l", "INFO",
        f"--logfile={log}", f"--pidfile={pid}",
    )  # fmt: skip
    assert begun.returncode == 0, begun.stderr
    eventually(lambda: log.exists() and UNKNOWN in log.read_text(), timeout=30)
    assert "Traceback" not in log.read_text()
    eventually(lambda: not pid.exists())


def test_beat_begins_where_the_store_is_away(make_project, start):
    url = f"redis://127.0.0.1:{free_port()}/0"
    beat = start(make_project(delayq_url=url), BEAT)
    beat.wait_log(rf"WARNING.*join failed: .* \(the store {url} of delayq_url\)")
    assert beat.running


# Which workers scan.


def test_a_worker_without_delayq_scans_nothing_says_so_and_still_runs_tasks(
    make_project, start_worker
):
    project = make_project()
    worker = start_worker(TASKS, "--no-delayq", "-P", "solo", env=project.env)
    assert any("no scanner in this worker because of --no-delayq" in one for one in worker.lines)
    held = project.tasks["note"].delay_for(0)
    project.wait_runs(project.tasks["note"].delay())
    assert project.scanners() == 0
    assert project.runs(held) == []
    assert not any("started: " in line for line in worker.lines)
    # Another worker scans the tasks that it leaves.
    start_worker(TASKS, "-P", "solo", env=project.env)
    project.wait_runs(held)


@pytest.mark.parametrize("module", ["tests.worker.by_hand", "tests.worker.both"])
def test_a_step_added_twice_starts_one_scanner(make_project, start_worker, module):
    project = make_project()
    worker = start_worker(module, "-P", "solo", env=project.env)
    result = project.tasks["note"].delay_for(0.1)
    worker.wait_log(rf"note\[{result.id}\].*succeeded")
    eventually(lambda: project.scanners() == 1)
    assert sum("scanner" in line and "started" in line for line in worker.lines) == 1


def test_two_apps_in_one_store_have_two_scanners_and_are_warned_of(make_project, start_worker):
    project = make_project()
    start_worker(TASKS, "-P", "solo", env=project.env)
    worker = start_worker("tests.worker.other_app", "-P", "solo", env=project.env)
    worker.wait_log(
        "the scanners of this store belong to the app worker-tests, this one belongs to the app "
        "other: .*; give each app its own delayq_prefix"
    )
    with Celery("web", set_as_current=False) as web:
        web.conf.update(project.conf)
        eventually(lambda: DelayQ(web).counts().scanners == 2)
