"""Programs that fork after they used the store: each process has its own links and chance."""

import json
import sys
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from shutil import which
from urllib.request import urlopen

import pytest

from celery_delayq.core.servers.pool import PerProcess
from tests.app.bulk import plain_task
from tests.support.children import in_child
from tests.support.missing import missing
from tests.support.ports import free_port
from tests.support.process import ChildProcess
from tests.support.waiting import PATIENCE, eventually
from tests.support.worker import ROOT

MODULE = "tests.app.forking"
UWSGI = (
    *("uwsgi", "--master", "--die-on-term", "--need-app", "--disable-logging"),
    *("--processes", "2", "--enable-threads", "--threads", "4", "--module", MODULE),
    "--http-socket",
)
GUNICORN = ("gunicorn", "--workers", "2", "--threads", "4", f"{MODULE}:application", "--bind")
SERVERS = [UWSGI, ("gunicorn", "--preload", *GUNICORN[1:])]
FRESH = [("uwsgi", "--lazy-apps", *UWSGI[1:]), GUNICORN]  # each process imports the program itself
AT_ONCE = 8  # requests
SPREAD = datetime(2100, 1, 1, tzinfo=timezone.utc), datetime(2100, 1, 2, tzinfo=timezone.utc)


@pytest.fixture
def serve(url, tmp_path):
    """Start a server with the program; return a function that sends it a request."""
    started = []

    def start(program, *options):
        path = which(program, path=Path(sys.executable).parent)
        if path is None:
            missing(program)
        port = free_port()
        command = (path, *options, f"127.0.0.1:{port}")
        env = {"FORKING_STORE": url, "PYTHONPATH": str(ROOT)}
        started.append(ChildProcess(command, log=tmp_path / "log", env=env, cwd=ROOT))

        def ask(number):
            with urlopen(f"http://127.0.0.1:{port}/?{number}", timeout=PATIENCE) as reply:
                return json.loads(reply.read())

        eventually(lambda: _answers(ask))
        return ask

    yield start
    for one in started:
        one.kill()


def _answers(ask):
    try:
        return ask(0)
    except OSError:
        return None


def thorough(values):
    return [pytest.param(one, marks=pytest.mark.thorough) for one in values]


@pytest.mark.parametrize("server", [*SERVERS, *thorough(FRESH)], ids=lambda server: server[0])
def test_each_process_of_a_web_server_has_links_of_its_own_and_right_answers(serve, server):
    ask, told = serve(*server), []

    def processes():
        with ThreadPoolExecutor(AT_ONCE) as threads:
            told.extend(threads.map(ask, range(0, 100 * AT_ONCE, 100)))
        return {one[0] for one in told}

    eventually(lambda: len(processes()) == 2)

    assert [one for one in told if not isinstance(one, list)] == []
    assert _shared(told) == {}


def _shared(told):
    """The links that several processes have used."""
    users = defaultdict(set)
    for pid, link in told:
        users[link].add(pid)
    return {link: pids for link, pids in users.items() if len(pids) > 1}


def test_threads_that_need_a_processs_object_at_once_get_the_same():
    both = threading.Barrier(2)

    def make():
        both.wait(PATIENCE)
        return object()

    own = PerProcess(make)
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(lambda _: own.get(), range(2))
    assert one is other


def test_forked_processes_spread_their_bulks_differently(delayq):
    def drawn():
        bulk = delayq.schedule_many(task, [((number,), {}) for number in range(5)], spread=SPREAD)
        return repr([delayq.get(one).due for one in bulk.ids]).encode()

    task = plain_task(delayq.app)
    assert len({in_child(drawn) for _ in range(2)}) == 2
