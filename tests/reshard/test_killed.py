"""It goes on, or is given up, wherever it was killed, or Redis stopped one of its scripts."""

import contextlib
import hashlib
import itertools
from collections import Counter
from dataclasses import replace

import pytest

from celery_delayq.core import services
from celery_delayq.core.store.scripts import Scripts
from celery_delayq.errors import StoreError
from tests.format.keys import raw as raw_of
from tests.format.keys import read, write
from tests.reshard.conftest import WRITING, contents
from tests.store.test_aborted import STOP, TRACE, stoppable, writing


class Killed(BaseException):
    """The process is gone."""


class DyingScripts(Scripts):
    """Scripts of a process that is killed before or after its `nth` call of one that writes."""

    left, side = 0, ""

    def call(self, name, **arguments):
        if name not in WRITING or (name == "reshard" and arguments["seen"] == arguments["next"]):
            return super().call(name, **arguments)
        DyingScripts.left -= 1
        if not DyingScripts.left and self.side == "before":
            raise Killed
        answer = super().call(name, **arguments)
        if not DyingScripts.left:
            raise Killed
        return answer


@pytest.fixture
def dying(monkeypatch):
    monkeypatch.setattr(services, "Scripts", DyingScripts)
    DyingScripts.left = 0
    return DyingScripts


@pytest.fixture
def killed(raw, dying, reshard):
    """Reshards a store that is written anew, and is killed at the nth call that writes."""

    def killed(delayq, start, shards, nth, side):
        raw.flushdb()
        write(raw, start)
        dying.left, dying.side = nth, side
        with pytest.raises(Killed):
            reshard(delayq, shards)
        dying.left = 0

    return killed


# Shards before and after; and each how manieth call is tried, as it takes a while.
@pytest.mark.parametrize("numbers", [(1, 2, 1), (2, 1, 2), (2, 3, 4)])
@pytest.mark.usefixtures("filled")
def test_a_resharding_goes_on_wherever_it_was_killed(app, reshard, raw, killed, numbers):
    delayq, (before, after, step) = app(1), numbers
    reshard(delayq, before)
    start = read(raw)
    DyingScripts.left = 0
    reshard(delayq, after)
    calls, wanted = -DyingScripts.left, contents(raw)
    assert calls > 10
    for nth in range(1, calls + 1, step):
        side = "before" if nth // step % 2 else "after"
        killed(delayq, start, after, nth, side)
        reshard(delayq, after)
        assert contents(raw) == wanted, f"killed {side} call {nth} of {calls}"


def test_a_killed_resharding_can_be_given_up_until_the_number_changes(
    filled, app, raw, killed, opened
):
    delayq = app(1)
    start, wanted = read(raw), contents(raw)
    for nth in itertools.count(1):
        killed(delayq, start, 3, nth, "before")
        one = opened(delayq)
        phase = one.under_way()
        if phase and phase.name not in ("close", "copy"):
            break
        assert one.abort() == bool(phase)
        assert contents(raw) == wanted
    assert nth > 11
    with pytest.raises(StoreError, match="too late to abort; finish it: reshard 3"):
        one.abort()


class StoppedScripts(Scripts):
    """Scripts of which Redis stops one before its `nth` write, each time."""

    name, writes = "", frozenset()

    def script(self, name):
        found = super().script(name)
        if name != self.name:
            return found
        found = stoppable(found, self.writes)
        # Over all of its calls, not in each.
        text = found.text.replace("writes + 1", f"redis.call('HINCRBY', '{STOP}', 'writes', 1)")
        return replace(found, text=text, sha=hashlib.sha1(text.encode()).hexdigest())


@pytest.fixture(params=WRITING)
def stopping(request, monkeypatch, redis_server):
    monkeypatch.setattr(services, "Scripts", StoppedScripts)
    monkeypatch.setattr(StoppedScripts, "writes", writing(redis_server))
    monkeypatch.setattr(StoppedScripts, "name", request.param)


@pytest.mark.usefixtures("filled", "stopping")
def test_a_script_that_redis_stops_half_way_is_made_up_for(app, reshard, raw):
    delayq, start = app(1), read(raw)
    reshard(delayq, 2)
    raw.delete(STOP, TRACE)
    wanted = contents(raw)
    uses = uses_of(wanted)

    def stopped(nth):
        raw.flushdb()
        write(raw, start)
        raw.hset(STOP, mapping={"nth": nth, "side": "before"})
        with contextlib.suppress(StoreError):
            reshard(delayq, 2)
        trace = raw.lrange(TRACE, 0, -1)
        raw.delete(STOP, TRACE)
        return trace

    firsts = {site: nth for nth, site in reversed([*enumerate(stopped(0), 1)])}
    assert firsts
    for site, nth in firsts.items():
        stopped(nth)
        reshard(delayq, 2)
        raw.delete(STOP, TRACE)
        after = contents(raw)
        # It counts a template before it writes the record, so a count may be too high.
        assert uses_of(after) >= uses
        assert after == wanted, site


def uses_of(found):
    """Take the counts of templates out of the contents, and return them."""
    parts = [key for key in found if key.endswith(":template_uses")]
    return Counter({
        (key, field): int(raw_of(value)) for key in parts for field, value in found.pop(key)["hash"]
    })  # fmt: skip
