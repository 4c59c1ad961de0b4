"""The README's ``shop.py`` as a module, on the suite's Redis."""

import contextlib
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.readme.document import README, ROOT
from tests.readme.runner import run
from tests.support.apps import celery_state_kept
from tests.support.garbage import no_collector


@pytest.fixture
def places(redis_server, redis_url):
    """Variables that Celery reads before the URLs in the code, so that it runs unchanged."""
    return {
        "CELERY_BROKER_URL": redis_server.url(),
        "CELERY_RESULT_BACKEND": redis_server.url(1),
    }


@pytest.fixture
def shop_file(tmp_path):
    """A folder with the README's first example as ``shop.py``."""
    (tmp_path / "shop.py").write_text(first_example().text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def environment(places, shop_file):
    """The environment of a process that can import ``shop`` and run this Python's ``celery``."""
    beside = Path(sys.executable).parent
    return {
        **places,
        "PYTHONPATH": f"{shop_file}:{ROOT}",
        "PATH": f"{beside}:{os.environ['PATH']}",
    }


@pytest.fixture
def module():
    """Make a module for an example to fill: ``module("shop")``; close everything it opens."""
    with celery_state_kept(), no_collector(), contextlib.ExitStack() as stack:

        def make(name):
            made = ModuleType(name)
            stack.callback(_close, made)
            return made

        yield make


@pytest.fixture
def shop(module, places, monkeypatch):
    """The README's ``shop``, importable."""
    for name, url in places.items():
        monkeypatch.setenv(name, url)
    made = module("shop")
    monkeypatch.setitem(sys.modules, "shop", made)
    run(first_example(), vars(made))
    return made


def first_example():
    return README.written_in("python")[0]


def _close(made):
    if "app" not in vars(made):
        return
    # A result collected after its Redis has stopped would try to unsubscribe there.
    consumer = getattr(made.app.backend, "result_consumer", None)
    if consumer is not None:
        consumer.stop()
        made.app.backend.remove_pending_result = lambda _: None
    made.delayq.close()
    made.app.close()
