"""A worker's start: one line on its store, or one sentence if it cannot start."""

import pytest
from celery import Celery

from celery_delayq import DelayQ
from celery_delayq.core.store.keys import SCHEMA
from tests.lab.faults.proxy import Proxy
from tests.support.forked import PythonProcess
from tests.support.ports import free_port
from tests.support.waiting import eventually
from tests.support.worker import ROOT
from tests.worker.project import TASKS
from tests.worker.test_revoke import celery

pytestmark = [pytest.mark.core, pytest.mark.libraries]

STARTED = r"scanner \S+ started: (.*)"
NO_DATABASE = (
    "delayq_url is 'redis://h/x'; expected a URL that names its database by a number, such as "
    "redis://host:6379/0"
)
BATCH = "delayq_batch_size is 1.5; expected a whole number of tasks from 1 to 1000"
UNKNOWN = "there is no setting delayq_batchsize; did you mean delayq_batch_size?"
DIFFERS = (
    f"the store has layout '999', this process '{SCHEMA}'; give it a delayq_prefix of its own, or "
    "make all processes agree"
)


def differ(project):
    """Make the store one that no process of this version may use."""
    meta = project.delayq.services.scripts[0].keys["meta"]
    project.client.hset(meta, mapping={"schema": "999", "shards": "1"})


def ended(process, sentence):
    """Check that it ended with status 1, and printed this sentence once."""
    assert process.wait() == 1
    assert sum(sentence in line for line in process.lines) == 1, process.tail()
    assert not any("Traceback" in line for line in process.lines)


@pytest.mark.operations
def test_it_is_one_line(make_project, start_worker):
    project = make_project(delayq_url=None)
    project.delayq.pause(queue="mail")
    project.tasks["note"].delay_for(3600)
    project.tasks["note"].s().set(queue="mail").delay_for(0)
    worker = start_worker(TASKS, "-P", "solo", env=project.env)
    assert worker.wait_log(STARTED).group(1) == (
        f"store {project.server.url()}, prefix {project.conf['delayq_prefix']}, hands over "
        "directly; 1 waiting, 0 overdue; paused: queue mail (1 due)"
    )
    assert sum(project.conf["delayq_prefix"] in line for line in worker.lines) == 1


def test_a_relay_names_its_broker_and_no_password_is_said(make_project, start_worker, start_redis):
    store = start_redis("--appendonly", "yes")
    store.client().execute_command("ACL", "SETUSER", "u", "on", ">hunter2", "~*", "&*", "+@all")
    project = make_project(delayq_url=store.url().replace("//", "//u:hunter2@"))
    worker = start_worker(TASKS, "-P", "threads", env=project.env)
    line = worker.wait_log(STARTED).group(1)
    assert line.startswith(f"store {store.url()}, prefix ")
    assert f"relays to the broker redis, database 0 on 127.0.0.1:{project.server.port}; " in line
    assert not any("hunter2" in line for line in worker.lines)
    assert not any("the store's Redis" in line for line in worker.lines)


def test_without_a_scanner_it_says_so(make_project, start_worker):
    project = make_project()
    worker = start_worker(TASKS, "--no-delayq", "-P", "solo", env=project.env)
    assert any("no scanner in this worker because of --no-delayq" in one for one in worker.lines)


def test_a_store_that_is_silent_does_not_keep_a_worker_from_starting(make_project, start_worker):
    project = make_project()
    project.patience = 5
    with Proxy(project.server.port) as proxy:
        project.conf["delayq_url"] = f"redis://127.0.0.1:{proxy.port}/0"
        proxy.stall()
        worker = start_worker(TASKS, "-P", "solo", env=project.env)
        project.wait_runs(project.tasks["note"].apply_async())
        worker.wait_log(rf"cannot reach the store redis://127.0.0.1:{proxy.port}/0 of delayq_url ")
        assert not any("started: " in line for line in worker.lines)
        proxy.resume()
        worker.wait_log(STARTED, timeout=40)


# It cannot start.


@pytest.mark.parametrize(
    ("pool", "conf", "sentence"),
    [
        ("gevent", {"delayq_batch_size": 1.5}, BATCH),
        ("threads", {"delayq_url": "redis://h/x"}, NO_DATABASE),
        ("prefork", {"delayq_batchsize": 5}, UNKNOWN),
    ],
)
def test_a_wrong_setting_is_a_sentence(make_project, start_worker, pool, conf, sentence):
    project = make_project()
    project.conf.update(conf)
    ended(start_worker(TASKS, "-P", pool, env=project.env, ready=False), sentence)


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_a_store_of_another_kind_is_a_sentence(make_project, start_worker, pool):
    project = make_project()
    differ(project)
    project.tasks["note"].apply_async()
    worker = start_worker(TASKS, "-P", pool, "-c", "2", env=project.env, ready=False)
    ended(worker, DIFFERS)
    assert project.queued() == 1  # it took no task


def test_another_broker_s_store_is_a_sentence(make_project, start_worker, server):
    project = make_project()
    start_worker(TASKS, "-P", "solo", env=project.env)
    other = make_project(
        broker_url=server.url(5),
        delayq_url=server.url(),
        delayq_prefix=project.conf["delayq_prefix"],
    )
    ended(
        start_worker(TASKS, "-P", "solo", env=other.env, ready=False),
        "the store has broker 'redis, database 0', this process 'redis, database 5'; give it a ",
    )


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


@pytest.fixture
def start_beat(tmp_path):
    """Start `celery beat` for a project."""
    started = []

    def start(project):
        line = ("-m", "celery", "-A", TASKS, "beat", "-l", "INFO", "-s", str(tmp_path / "schedule"))
        log = tmp_path / "beat.log"
        started.append(PythonProcess(*line, log=log, env=project.env, cwd=ROOT))
        return started[-1]

    yield start
    for beat in started:
        beat.kill()


def test_beat_says_it_too(make_project, start_beat):
    ended(start_beat(make_project(delayq_batchsize=5)), UNKNOWN)


def test_beat_does_not_begin_with_a_store_of_another_kind(make_project, start_beat):
    project = make_project()
    differ(project)
    ended(start_beat(project), DIFFERS)


def test_beat_begins_where_the_store_is_away(make_project, start_beat):
    url = f"redis://127.0.0.1:{free_port()}/0"
    beat = start_beat(make_project(delayq_url=url))
    beat.wait_log(rf"WARNING.*join failed: .* \(the store {url} of delayq_url\)")
    assert beat.running


@pytest.mark.operations
def test_the_commands_say_it_too(make_project):
    done = celery(make_project(delayq_batchsize=5), "delayq", "scan")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: {UNKNOWN}\n"


@pytest.mark.operations
def test_a_scanner_without_a_worker_ends_where_its_store_refuses_it(make_project):
    project = make_project()
    differ(project)
    done = celery(project, "delayq", "scan")
    assert done.returncode == 1
    assert done.stderr.count(DIFFERS) == 1
    assert "Traceback" not in done.stderr


# Other processes use the store.


def test_two_apps_in_one_store_are_warned_of(make_project, start_worker):
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


def test_a_broker_that_is_called_otherwise_is_warned_of_by_both_names(make_project, start_worker):
    project = make_project()
    start_worker(TASKS, "-P", "solo", env=project.env)
    project.conf["broker_url"] = project.server.url().replace("127.0.0.1", "localhost")
    worker = start_worker(TASKS, "-P", "solo", env=project.env)
    port = project.server.port
    worker.wait_log(
        f"the scanners of this store use the broker redis, database 0 on 127.0.0.1:{port}, this "
        f"process uses redis, database 0 on localhost:{port}; if two apps .* its own delayq_prefix"
    )


def test_a_redis_that_keeps_nothing_is_warned_of_once(crew):
    said = [one for one in crew.worker.lines if "loses waiting tasks when it restarts" in one]
    assert len(said) == 1
    assert "set appendonly yes" in said[0]
