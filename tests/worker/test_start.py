"""A worker starts, or says in one sentence why not; runs tasks with every pool; and stops."""

import signal

import pytest
from celery import VERSION, Celery

from celery_delayq import DelayQ
from celery_delayq.core.store.keys import SCHEMA
from tests.support.forked import PythonProcess
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE, eventually
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


# A scheduled task through a real worker, with every pool.


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


# A worker's scanner ends with it, promptly, whichever way the worker is stopped.


# A scanner that did not end would sleep this long; most of the time to end is Celery's own.
SLEEPS = 10 * PATIENCE
HAS_SOFT_SHUTDOWN = VERSION >= (5, 5)
POOLS = ("prefork", "threads", "solo", "gevent")
SIGNALS = (signal.SIGTERM, signal.SIGQUIT)


@pytest.fixture(scope="module")
def ended_crews(standing):
    """Each kind of worker after each signal; all are stopped together, to save time."""
    crews = {
        (pool, number): standing("-P", pool, "-c", "1", ready=False, delayq_safety_interval=SLEEPS)
        for pool in POOLS
        for number in SIGNALS
    }
    for crew in crews.values():
        crew.worker.wait_ready(60)
        crew.tasks["note"].delay_for(3600)
        eventually(lambda crew=crew: crew.scanners() == 1)
    for (_, number), crew in crews.items():
        crew.worker.signal(number)
    return crews


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("pool", POOLS)
def test_an_idle_worker_ends_promptly(ended_crews, pool, number):
    crew = ended_crews[pool, number]
    assert crew.worker.wait(PATIENCE) == 0
    assert crew.scanners() == 0
    assert crew.delayq.counts().scheduled == 1


def test_a_worker_that_finishes_its_task_first_scans_no_more(make_project, start_worker):
    project = make_project()
    worker = start_worker(TASKS, "-P", "prefork", "-c", "1", env=project.env)
    held = project.tasks["hold"].delay(30)
    project.wait_runs(held)
    worker.signal(signal.SIGTERM)
    worker.wait_log(r"scanner .* stopped")
    late = project.tasks["note"].delay_for(0)
    project.let_go(held)
    assert worker.wait() == 0
    assert project.delayq.get(late.id)
    assert project.queued() == 0


@pytest.mark.skipif(not HAS_SOFT_SHUTDOWN, reason="Celery 5.5 brought it")
def test_a_soft_shutdown_ends_promptly(make_project, start_worker):
    project = make_project(worker_soft_shutdown_timeout=2.0, delayq_safety_interval=SLEEPS)
    env = {**project.env, "REMAP_SIGTERM": "SIGQUIT"}
    worker = start_worker(TASKS, "-P", "prefork", "-c", "1", env=env, plain=True)
    held = project.tasks["hold"].delay(60)
    project.wait_runs(held)
    worker.stop(signal.SIGTERM)
    assert project.scanners() == 0
