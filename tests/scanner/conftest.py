import gc
from pathlib import Path
from types import SimpleNamespace

import pytest

from celery_delayq import DelayQ
from celery_delayq.handover import scanner
from celery_delayq.store import engine
from tests.scanner.fakes import World
from tests.scanner.house import House

FOLDER = Path("/proc/self/fd")


@pytest.fixture
def world(monkeypatch):
    """A scanner over fakes: virtual time, no threads."""

    def make(**options):
        made = World(**options)
        # The scanner's own view of the clock, and nobody else's.
        for module in (scanner, engine):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=made.monotonic))
        return made

    return make


@pytest.fixture
def house(make_app, redis_server, redis_url):
    """Make an app on the suite's Redis whose scanners the test starts: ``house(safety=0.5)``."""
    made = []

    def build(url=redis_url, **conf):
        made.append(House(DelayQ(make_app(url, **conf)), redis_server))
        return made[-1]

    yield build
    for one in made:
        one.close()


@pytest.fixture
def descriptors():
    """Count this process's open descriptors."""

    def count() -> int:
        gc.collect()
        return len(list(FOLDER.iterdir()))

    if not FOLDER.exists():
        pytest.skip("this system does not tell a process's descriptors")
    return count
