"""`celery delayq web`: a real process, on loopback, that answers to no foreign name."""

import os
import signal
import socket
import sys
from contextlib import ExitStack
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.cli.conftest import project, run, sigint
from tests.support.process import ChildProcess

__all__ = ["project", "run", "sigint"]

PROJECT = """
import os
from celery import Celery
from celery_delayq import DelayQ

app = Celery("shop", broker=os.environ["REDIS"])
delayq = DelayQ(app)
"""


@pytest.fixture
def start(tmp_path, redis_url, sigint):
    """Start the command, and wait until it serves: ``start("--read-only")``."""
    started = []
    (tmp_path / "web_shop.py").write_text(PROJECT)

    def start(*options):  # returns the process and its URL
        command = ("-m", "celery", "-A", "web_shop", "delayq", "web", "--port", "0", *options)
        path = os.pathsep.join([str(tmp_path), *sys.path])
        process = ChildProcess(
            [sys.executable, "-u", *command],
            log=tmp_path / "web.log",
            env={"REDIS": redis_url, "PYTHONPATH": path},
        )
        started.append(process)
        [url] = process.wait_log("the page is on (http://localhost:[0-9]+)/; Ctrl-C").groups()
        return process, url

    yield start
    for process in started:
        process.kill()


def asked(url, **headers):
    try:
        with urlopen(Request(url, headers=headers), timeout=30) as answered:
            return answered.status, answered.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_web_command_serves_until_ctrl_c(start):
    process, url = start()
    status, text = asked(url)
    refused, _ = asked(url, Host="evil.example")
    status_at_end = process.stop(signal.SIGINT)
    assert (status, refused) == (200, 421)
    assert "Overview · shop</title>" in text
    assert status_at_end == 0
    assert "Traceback" not in process.tail()


def test_the_web_command_listens_on_loopback_only(start):
    _, url = start()
    port = int(url.rpartition(":")[2])
    with socket.socket() as other:
        # Another program can have the port on any other address.
        other.bind(("127.0.0.2", port))


def test_connections_that_ask_nothing_do_not_keep_others_out(start):
    _, url = start()
    address = ("127.0.0.1", int(url.rpartition(":")[2]))
    with ExitStack() as stack:
        for _ in range(150):  # waitress serves 100 at a time
            stack.enter_context(socket.create_connection(address))
        status, _ = asked(url)
    assert status == 200


def test_a_port_that_is_taken_is_said(run, app):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("web", "--port", str(port))
    assert result.exit_code == 1
    assert f"port {port} of 127.0.0.1: Address already in use" in result.output


def test_a_missing_package_is_said(run, app, monkeypatch):
    monkeypatch.setitem(sys.modules, "waitress", None)
    result = run("web")
    assert result.exit_code == 1
    assert "pip install 'celery_delayq[web]'" in result.output
