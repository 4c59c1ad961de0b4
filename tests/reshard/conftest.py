"""A store to be moved to another number of shards, and ways to look at it, or to interfere."""

import contextlib

import pytest

from celery_delayq.contrib.care.migration import Resharding
from celery_delayq.core import services
from celery_delayq.core.store.keys import Keys
from celery_delayq.core.store.scripts import Scripts
from tests.format.filling import app_of, fill
from tests.format.keys import raw as raw_of
from tests.format.keys import read
from tests.support.waiting import PATIENCE

META = Keys("delayq")["meta"]
WRITING = ("reshard", "close", "move_in", "fill_rest")


@pytest.fixture
def raw(redis_server, redis_url):
    with redis_server.client() as client:
        yield client


@pytest.fixture
def app(redis_url):
    """Makes the app of processes with so many shards."""
    with contextlib.ExitStack() as stack:
        yield lambda shards, **conf: stack.enter_context(
            contextlib.closing(
                app_of(redis_url, **{"delayq_shards": shards, "delayq_timeout": PATIENCE, **conf})
            )
        )


@pytest.fixture
def filled(redis_url, raw):
    """A store of one shard with an entry of each kind, whose leases are over."""
    fill(redis_url, raw)
    # A task has left, and its key is held a while longer.
    raw.zadd(Keys("delayq")["held"], {"left": 10**13})
    raw.hset(Keys("delayq")["holders"], "left", "gone")
    raw.zadd(Keys("delayq")["leased"], {raw.zrange(Keys("delayq")["leased"], 0, 0)[0]: 1}, xx=True)


@pytest.fixture
def opened():
    """A Resharding of a store, until the test ends: ``opened(delayq).abort()``."""
    with contextlib.ExitStack() as stack:
        yield lambda delayq: stack.enter_context(contextlib.closing(Resharding(delayq.services)))


@pytest.fixture
def reshard(raw):
    """Runs it in a store whose calls last a millisecond at most."""

    def run(delayq, shards):
        raw.hset(META, "timeout", 1)
        with contextlib.closing(Resharding(delayq.services)) as one:
            return one.run(shards)

    return run


@pytest.fixture
def moved(app, reshard):
    """Reshards to each of these numbers, and gives the app that has it: ``moved(delayq, 3, 2)``."""

    def moved(delayq, *numbers):
        for shards in numbers:
            assert reshard(delayq, shards)
            delayq = app(shards)
            yield delayq

    return moved


def contents(raw):
    """All keys, without what names one run; the numbers of shards that are not used are empty."""
    found = read(raw)
    for key, content in found.items():
        if key.endswith(":meta"):
            content["hash"] = [
                [field, value]
                for field, value in content["hash"]
                if raw_of(field) not in (b"closed", b"ended", b"timeout", b"store")
            ]
    return {key: content for key, content in found.items() if content != {"hash": []}}


class HookedScripts(Scripts):
    """Scripts that call a test before each call that writes."""

    before = None

    def call(self, name, **arguments):
        is_read = name == "reshard" and arguments["seen"] == arguments["next"]
        if self.before is not None and name in WRITING and not is_read:
            type(self).before(self, name, arguments)
        return super().call(name, **arguments)


@pytest.fixture
def before_each(monkeypatch):
    """Calls a function before each call that writes."""
    monkeypatch.setattr(services, "Scripts", HookedScripts)

    def put(function):
        monkeypatch.setattr(HookedScripts, "before", staticmethod(function))

    yield put
    HookedScripts.before = None


@pytest.fixture
def during(before_each, reshard):
    """Reshards, and calls a function once, while the first page is copied."""

    def run(delayq, shards, function):
        def once(_, name, __):
            if name == "move_in":
                before_each(None)
                function()

        before_each(once)
        return reshard(delayq, shards)

    return run
