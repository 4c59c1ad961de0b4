"""The whole example: its Redis, users, app, variables and unit, on real servers."""

import configparser
import os
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest

from tests.operations.restricted import documented
from tests.readme.document import ROOT, page
from tests.support.certificates import program_with_tls
from tests.support.ports import free_port
from tests.support.process import ChildProcess
from tests.support.waiting import PATIENCE, eventually

CONF, USERS, VARIABLES = (block.text for block in page("operate/running").written_in("text"))
[APP] = page("operate/running").written_in("python")
[UNIT] = page("operate/running").written_in("ini")


@pytest.fixture
def unit():
    read = configparser.RawConfigParser()
    read.optionxform = str
    read.read_string(UNIT.text)
    return read["Service"]


@pytest.fixture
def store(start_redis, certificates, tmp_path):
    """The URL of a Redis as the page configures it; paths and the port are the test's own."""
    users = tmp_path / "users.acl"
    users.touch()
    places = {
        "/etc/redis/tls/redis": f"{certificates}/server",
        "/etc/redis/tls": str(certificates),
        "/etc/redis/users.acl": str(users),
    }
    conf = CONF.replace("tls-port 6379", f"tls-port {free_port()}")
    for place, own in places.items():
        conf = conf.replace(place, own)
    lines = [line.split(maxsplit=1) for line in conf.splitlines() if not line.startswith("#")]
    port = dict(lines)["tls-port"]
    options = [word for name, value in lines if name != "port" for word in (f"--{name}", value)]
    with program_with_tls() as binary:
        server = start_redis(*options, binary=binary)
    client = server.client()
    client.execute_command("ACL", "SETUSER", "delayq", *documented())
    client.execute_command("ACL", "SETUSER", "delayq", *documented(doctor=True))
    for line in USERS.splitlines():
        client.execute_command(*line.split())
    assert "user delayq on" in users.read_text("utf-8")
    return f"127.0.0.1:{port}", f"{certificates}/ca.crt"


@pytest.fixture
def environment(store, rabbitmq_server, tmp_path):
    """The page's variables, with this test's servers."""
    own_queue = f'app.conf.task_default_queue = "{tmp_path.name}"\n'  # others use this RabbitMQ
    (tmp_path / "shop.py").write_text(APP.text + own_queue, "utf-8")
    told = dict(re.findall(r'^(\w+)="(.*)"$', VARIABLES, re.MULTILINE))
    where, authority = store
    redis = told["SHOP_STORE"].replace("red.example:6379", where)
    return {
        "SHOP_STORE": redis.replace("/etc/shop/ca.crt", authority),
        "SHOP_BROKER": rabbitmq_server.url,
        "PYTHONPATH": f"{tmp_path}:{ROOT}",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }


def active(start):
    """The tasks that the worker runs, as its command shows them."""
    shown = start("celery", "-A", "shop", "inspect", "active", name="active.log")
    assert shown.wait(PATIENCE) == 0, shown.tail()
    return shown.tail()


def test_all_of_it_is_well_a_task_runs_and_the_worker_ends_by_the_unit_s_signal(
    environment, unit, tmp_path
):
    def start(*words, name):
        return ChildProcess(words, log=tmp_path / name, env=environment, cwd=tmp_path)

    program, *words = shlex.split(unit["ExecStart"].replace("%%", "%"))
    worker = start(Path(program).name, *words, "-c", "1", name="worker.log")
    try:
        worker.wait_log("worker@.* ready")
        health = ("celery", "-A", "shop", "delayq", "health")
        eventually(lambda: start(*health, name="health.log").wait(PATIENCE) == 0)
        doctor = start("celery", "-A", "shop", "delayq", "doctor", name="doctor.log")
        assert doctor.wait(PATIENCE) == 0, doctor.tail()
        call = "import shop; shop.remind.delay_for(0.1, 42)"
        assert start(sys.executable, "-c", call, name="call.log").wait(PATIENCE) == 0
        worker.wait_log("order 42 is not paid")
        # While one runs, a soft shutdown waits as long as it may.
        eventually(lambda: "- empty -" in active(start))
        worker.signal(signal.Signals[unit["KillSignal"]])
        assert worker.wait(PATIENCE) == 0
    finally:
        worker.kill()


def test_systemd_waits_longer_than_the_soft_shutdown(unit):
    [soft] = re.findall(r"worker_soft_shutdown_timeout = (\d+)", APP.text)
    assert int(unit["TimeoutStopSec"]) > int(soft)
