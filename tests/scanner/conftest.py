import gc
import threading
from pathlib import Path

import pytest

from celery_delayq.core import clock
from tests.scanner.fakes import World
from tests.scanner.house import House
from tests.support.waiting import PATIENCE

FOLDER = Path("/proc/self/fd")


@pytest.fixture
def world(monkeypatch):
    """A scanner over fakes, in virtual time and the test's own thread."""
    wait = threading.Event.wait

    def make(**options):
        made = World(**options)
        monkeypatch.setattr(clock, "monotonic", made.monotonic)
        monkeypatch.setattr(
            threading.Event,
            "wait",
            lambda event, seconds=None: made.wait_for(event, seconds, wait),
        )
        return made

    return make


@pytest.fixture
def house(make_app, redis_server, redis_url, limits):
    """Make an app on the suite's Redis; the test starts its scanners: ``house(safety=0.5)``."""
    # A busy machine's slow Redis is not a lost one.
    limits(answer_s=PATIENCE, reach_s=PATIENCE)
    made = []

    def build(url=redis_url, **conf):
        conf.setdefault("delayq_timeout", PATIENCE)
        made.append(House(make_app(url, **conf), redis_server))
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
