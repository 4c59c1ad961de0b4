import pytest

from celery_delayq import DelayQ
from tests.lab.faults.processes import ScannerProcess


def note(*_args):
    """A task that no worker of these tests runs."""


@pytest.fixture
def client(redis_server, redis_url):
    """A client of the suite's Redis, which is empty."""
    with redis_server.client() as one:
        yield one


@pytest.fixture
def make_delayq(make_app):
    """Make a DelayQ whose store and broker are one Redis, and its task ``.note``."""
    made = []

    def make(url, **conf):
        made.append(DelayQ(make_app(url, **conf)))
        made[-1].note = made[-1].app.task(name="note", shared=False)(note)
        return made[-1]

    yield make
    for delayq in made:
        delayq.close()


@pytest.fixture
def start_scanner(tmp_path):
    """Start a scanner process: ``start_scanner({"broker_url": …})``."""
    started = []

    def start(conf):
        log = tmp_path / f"scan-{len(started)}.log"
        started.append(ScannerProcess(conf, log=log))
        return started[-1]

    yield start
    for process in started:
        process.kill()
