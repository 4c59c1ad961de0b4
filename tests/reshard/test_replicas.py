"""With ``delayq_wait_replicas``, replicas have each step of a resharding before the next one."""

import contextlib

import pytest

from celery_delayq.contrib.care.migration import (
    EMPTY,
    FILLING,
    FINAL,
    MOVED,
    NO_CHANGES,
    OPEN,
    Phase,
    Resharding,
)
from celery_delayq.core import services
from celery_delayq.core.store.keys import Keys
from celery_delayq.core.store.scripts import Scripts
from celery_delayq.errors import StoreError
from tests.app.support import FAR
from tests.format.filling import app_of
from tests.reshard.conftest import META, WRITING
from tests.support.limits import Limits
from tests.support.redis_programs import redis_binaries, version_of
from tests.support.replicas import replicated
from tests.support.waiting import eventually

TASKS = 20
TOO_FEW = "0 of 1 replicas had what was written"


@pytest.fixture(scope="module")
def servers():
    # From 7.2 on, WAIT answers at once on a connection that has written nothing.
    newest = max((path for _, path in redis_binaries()), key=version_of)
    with replicated(binary=newest) as made:
        yield made


@pytest.fixture
def pair(servers):
    servers.client.flushall()
    eventually(servers.in_step)
    return servers


@contextlib.contextmanager
def away(server):
    server.pause()
    try:
        # Only here: a busy machine's replica may need long to catch up.
        with Limits().within(catch_up_s=0.1):
            yield
    finally:
        server.resume()


@pytest.fixture
def app(pair):
    """Makes the app of processes with so many shards, which wait for so many replicas."""
    with contextlib.ExitStack() as stack:

        def make(shards, *wait):
            conf = {"delayq_shards": shards, "delayq_wait_replicas": wait or None}
            return stack.enter_context(contextlib.closing(app_of(pair.master.url(), **conf)))

        yield make


@pytest.fixture
def raw(pair):
    return pair.client


@pytest.fixture
def filled(app):
    """A store of one shard."""
    delayq = app(1)
    for number in range(TASKS):
        delayq.app.send_task("t", task_id=f"id-{number}", delayq_at=FAR)


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("phase", ["copy", "clear"])
def test_a_resharding_stops_where_the_replica_is_away_and_goes_on_when_it_is_back(
    app, reshard, pair, monkeypatch, phase
):
    delayq, step = app(1, 1, 2.0), getattr(Resharding, f"_{phase}")

    def without_the_replica(self, noted):
        with away(pair.replicas[0]):
            step(self, noted)

    with monkeypatch.context() as patched:
        patched.setattr(Resharding, f"_{phase}", without_the_replica)
        with pytest.raises(StoreError, match=TOO_FEW):
            reshard(delayq, 3)
    eventually(pair.in_step)
    assert reshard(delayq, 3)
    assert app(3).counts().scheduled == TASKS


@pytest.mark.usefixtures("filled")
def test_a_step_that_comes_again_is_written_and_waited_for_again(app, pair):
    phase = Phase("close", 1, 3, "its-name")
    levels = ((1, NO_CHANGES), (1, FINAL), (3, FILLING), (1, MOVED), (3, OPEN), (1, EMPTY))

    def set_level(shards, level):
        return lambda one: one._set(one._shards(shards), level, phase)

    def take(step):
        # Its connections have written nothing else.
        with contextlib.closing(Resharding(app(1, 1, 2.0).services)) as one:
            step(one)

    take(lambda one: one._go_on(None, phase))
    for step in (lambda one: one._go_on(phase, phase), *(set_level(*each) for each in levels)):
        take(step)
        with away(pair.replicas[0]), pytest.raises(StoreError, match=TOO_FEW):
            take(step)
        eventually(pair.in_step)


@pytest.mark.usefixtures("filled")
def test_a_resharding_waits_for_each_phase_and_for_what_it_copied(app, reshard, monkeypatch):
    steps = []

    class NotingScripts(Scripts):
        def call(self, name, **arguments):
            steps.append((name, self.keys["records"], ""))
            return super().call(name, **arguments)

        def call_and(self, name, command, **arguments):
            steps.append((name, self.keys["records"], arguments.get("next", "").partition(" ")[0]))
            return super().call_and(name, command, **arguments)

    monkeypatch.setattr(services, "Scripts", NotingScripts)
    assert reshard(app(1, 1, 2.0), 3)
    noted = [phase for name, _, phase in steps if name == "reshard" and phase]
    # Once as the phase before it ends, and once as it begins.
    assert noted == [name for name in ("close", "copy", "switch", "clear") for _ in range(2)]
    copied = steps.index(("reshard", META.replace("meta", "records"), "switch"))
    for shard in range(3):
        records = Keys("delayq", shard, 3)["records"]
        written = [name for name, key, _ in steps[:copied] if key == records and name in WRITING]
        assert {"close", "fill_rest"} <= set(written)
        assert written[-1] == "close"
