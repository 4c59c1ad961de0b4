"""Real workers and scanners that serve metrics: their values, and when they serve none."""

import contextlib
import os
import socket

import pytest
from prometheus_client import CollectorRegistry

from celery_delayq import DelayQ
from celery_delayq.contrib.metrics.serving import Serving
from tests.metrics.support import Scrape
from tests.support.forked import PythonProcess
from tests.support.ports import free_port
from tests.support.waiting import eventually
from tests.support.worker import ROOT
from tests.worker.project import TASKS

pytestmark = pytest.mark.libraries

SERVED = r"metrics are served on http://127.0.0.1:\d+/metrics"
MISSING = (
    "delayq_metrics_port is {}; expected None, as prometheus-client is missing: "
    "pip install 'celery_delayq[metrics]'"
)


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def work(make_project, start_worker, port):
    """A project whose metrics have a port, and a worker of it: ``work("solo", "--no-delayq")``."""

    def work(pool, *options, env=None, ready=True, **conf):
        project = make_project(**{"delayq_metrics_port": port, **conf})
        env = {**project.env, **(env or {})}
        return project, start_worker(TASKS, "-P", pool, *options, env=env, ready=ready)

    return work


@pytest.fixture
def scan(tmp_path):
    """Start `celery delayq scan`, and do not wait for it."""
    with contextlib.ExitStack() as stack:

        def start(project, env=None):
            line = ("-m", "celery", "-A", TASKS, "delayq", "scan")
            env = {**project.env, **(env or {})}
            process = PythonProcess(*line, log=tmp_path / "scan.log", env=env, cwd=ROOT)
            stack.callback(process.kill)
            return process

        yield start


def without_prometheus(tmp_path):
    """Variables for a process that has no prometheus-client."""
    name = "prometheus_client"
    module = tmp_path / "without" / f"{name}.py"
    module.parent.mkdir()
    module.write_text(f"raise ModuleNotFoundError('no module {name}', name='{name}')")
    return {"PYTHONPATH": str(module.parent)}


def until(port, holds, what):
    """The first scrape for which the condition is true."""
    return eventually(
        lambda: found if holds(found := Scrape.from_port(port)) else None, message=what
    )


def is_free(port):
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def can_listen(port):
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo", "gevent"])
def test_a_worker_serves_what_is_there_and_what_it_did(work, port, pool):
    project, worker = work(pool, "-c", "2")
    worker.wait_log(SERVED)
    far = [project.tasks["note"].delay_for(3600) for _ in range(3)]
    far[0].cancel()
    for _ in range(4):
        project.wait_runs(project.tasks["note"].delay_for(0.01))

    # A worker without CPU time for its heartbeat may look dead for a moment.
    found = until(
        port,
        lambda it: (
            it.by_label("handed_over_total") == {"direct": 4}
            and it.samples.get(("scanners", ())) == 1
        ),
        "4 went",
    )

    assert (found["store_up"], found["waiting_tasks"]) == (1, 2)
    assert found.by_label("queue_waiting_tasks") == {project.queue: 2}
    assert found.by_label("handover_lateness_seconds_count") == {"direct": 4}
    assert 0 < found.by_label("handover_lateness_seconds_sum")["direct"] < 4 * 60
    assert 3500 < found["next_due_seconds"] <= 3600
    assert found.by_label("script_duration_seconds_count")["hand_over"] >= 4
    assert worker.stop() == 0
    assert is_free(port)


def test_steps_of_children_are_counted_if_they_share_a_folder(work, port, tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    project, _ = work("prefork", "-c", "2", env={"PROMETHEUS_MULTIPROC_DIR": str(folder)})
    ids = [f"{project.queue}-{number}" for number in range(3)]
    # In a child.
    project.tasks["spawn"].delay_for(0.01, ids, 0.01)
    for task_id in ids:
        project.wait_runs(task_id)

    # The child may count its last call only after the task of that has run.
    found = until(
        port,
        lambda it: (
            it.by_label("handed_over_total") == {"direct": 4}
            and it.samples.get(("scheduled_total", ())) == 3
        ),
        "4 went, and 3 were scheduled",
    )

    assert (found["store_up"], found["waiting_tasks"]) == (1, 0)
    assert found.by_label("script_duration_seconds_count")["schedule"] >= 3


def test_a_port_that_is_taken_is_said_and_taken_over_from_a_worker_that_is_killed(
    work, start_worker, port
):
    project, first = work("threads")
    first.wait_log(SERVED)
    second = start_worker(TASKS, "-P", "threads", env=project.env)
    second.wait_log(rf"metrics are not served on 127\.0\.0\.1, port {port}: .*in use")
    eventually(lambda: project.scanners() == 2, message="both scan")

    first.kill()

    second.wait_log(SERVED)
    project.wait_runs(project.tasks["note"].delay_for(0.01))
    until(port, lambda it: it.by_label("handed_over_total") == {"direct": 1}, "it serves its own")
    assert sum("metrics are not served" in line for line in second.lines) == 1
    assert second.stop() == 0
    assert is_free(port)


@pytest.fixture
def make_serving(make_app, redis_url, port):
    """Make a server in this process, with its own registry."""

    def make(**conf):
        serving = Serving(DelayQ(make_app(redis_url, **conf)), port, "127.0.0.1")
        serving._registry = CollectorRegistry()
        return serving

    return make


def test_a_child_that_outlives_its_worker_does_not_keep_the_port(make_serving, port):
    serving = make_serving()
    serving.start()
    wait, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        os.read(wait, 1)
        os._exit(0)
    assert not is_free(port)

    serving.stop()

    try:
        eventually(lambda: can_listen(port))
    finally:
        os.close(end)
        os.waitpid(child, 0)
        os.close(wait)


def test_a_process_that_stops_while_the_port_is_taken_tries_no_more(make_serving, port):
    serving = make_serving(delayq_safety_interval=0.1)
    with socket.create_server(("127.0.0.1", port)):
        serving.start()
        serving.stop()
    assert not serving._trying.is_alive()
    assert is_free(port)


@pytest.mark.parametrize(("safety", "seconds"), [(300.0, 5.0), (0.5, 0.5)])
def test_a_port_that_is_taken_is_tried_again_every_five_seconds_at_least(
    make_serving, safety, seconds
):
    assert make_serving(delayq_safety_interval=safety)._again == seconds


def test_an_address_of_another_machine_is_said_and_ends_no_worker(work, port):
    _, worker = work("solo", delayq_metrics_host="203.0.113.1")

    worker.wait_log(rf"metrics are not served on 203\.0\.113\.1, port {port}: .*assign")
    assert worker.stop() == 0


def test_a_worker_that_does_not_scan_serves_nothing(work, port):
    _, worker = work("solo", "--no-delayq")

    assert is_free(port)
    assert worker.stop() == 0
    assert not any("metrics are" in line for line in worker.lines)


def test_a_scanner_of_its_own_serves_as_well_until_it_is_told_to_stop(make_project, scan, port):
    project = make_project(delayq_metrics_port=port)
    alone = scan(project)
    alone.wait_log(SERVED)
    project.tasks["note"].delay_for(0.01)

    until(port, lambda it: it.by_label("handed_over_total") == {"direct": 1}, "it went")
    until(port, lambda it: it.samples.get(("scanners", ())) == 1, "it is alive")

    assert alone.stop() == 0
    assert is_free(port)


def test_without_the_extra_the_setting_is_a_sentence_and_status_1(work, scan, port, tmp_path):
    env = without_prometheus(tmp_path)

    project, worker = work("solo", env=env, ready=False)

    for process in (worker, scan(project, env)):
        assert process.wait() == 1
        assert sum(MISSING.format(port) in line for line in process.lines) == 1, process.tail()
        assert not any("Traceback" in line for line in process.lines)


def test_without_the_extra_and_the_setting_nothing_is_missed(work, tmp_path):
    project, worker = work("solo", env=without_prometheus(tmp_path), delayq_metrics_port=None)

    project.wait_runs(project.tasks["note"].delay_for(0.01))
    assert worker.stop() == 0


def test_a_shared_folder_that_is_not_there_is_a_sentence(work):
    env = {"PROMETHEUS_MULTIPROC_DIR": "/no/such/folder"}

    _, worker = work("solo", env=env, ready=False)

    assert worker.wait() == 1
    sentence = "PROMETHEUS_MULTIPROC_DIR is '/no/such/folder'; expected the path of a folder"
    assert sum(sentence in line for line in worker.lines) == 1, worker.tail()
