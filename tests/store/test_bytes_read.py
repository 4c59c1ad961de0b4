"""A script reads no more than its bound of bytes and one entry, wherever the large ones stand.

The script itself counts the bytes of Redis's answers. (Time would show the same, less exactly.)
"""

import hashlib
from dataclasses import replace

import pytest

from celery_delayq.core.servers.connection import packed
from celery_delayq.core.store import Listing
from celery_delayq.core.store.delivery import MAX_BYTES
from celery_delayq.core.store.record import lane_for
from tests.store import support
from tests.store.support import NOW_MS, ClockedScripts, Store

pytestmark = pytest.mark.core

METER = "test:bytes-read"
COUNTING = f"""
local plain = redis
local function size_of(reply)
  if type(reply) == 'string' then return #reply end
  local size = 0
  for _, part in ipairs(type(reply) == 'table' and reply or {{}}) do size = size + size_of(part) end
  return size
end
local function counted(reply)
  plain.call('INCRBY', '{METER}', size_of(reply))
  return reply
end
local redis = {{
  sha1hex = plain.sha1hex,
  call = function(...) return counted(plain.call(...)) end,
  pcall = function(...) return counted(plain.pcall(...)) end,
}}
"""
LARGE = "x" * 600_000
ENTRY = len(LARGE) + 1000
SMALL = 4000  # bytes of a record, as the scripts say
SMALL_THINGS = 50_000  # members, scores, claims


class MeteredScripts(ClockedScripts):
    """The scripts; they note how many bytes they read, and the most that one call read."""

    most = 0

    def _prepare(self, name):
        call = super()._prepare(name)
        text = COUNTING + call.script.text
        script = replace(call.script, text=text, sha=hashlib.sha1(text.encode()).hexdigest())
        call = replace(call, script=script, by_sha=packed(["EVALSHA", script.sha]))
        self._calls[name] = call
        return call

    def call(self, name, **arguments):
        self.meter.delete(METER)
        try:
            return super().call(name, **arguments)
        finally:
            type(self).most = max(type(self).most, int(self.meter.get(METER) or 0))


class MeteredStore(Store):
    def new_scripts(self, **settings):
        settings = replace(self.settings, **settings)
        scripts = MeteredScripts(self._client(), self.keys, settings)
        scripts.meter = self.raw
        return scripts


@pytest.fixture
def metered(redis_server):
    redis_server.client().flushall()
    made = MeteredStore(redis_server)
    yield made
    made.close()


def most_of(step) -> int:
    """The most bytes that one call of a script read meanwhile."""
    MeteredScripts.most = 0
    step()
    return MeteredScripts.most


def mixed():
    """Bodies: small ones, enough to be read many at a time, and then large ones."""
    return ["x"] * 31 + [LARGE] * 17


def until_empty(step):
    """Run steps until one does nothing."""

    def drain():
        while step():
            pass

    return drain


@pytest.fixture
def filled(metered, monkeypatch):
    """Schedule large entries: mixed with small ones, or each with a large template of its own."""

    def fill(schedule, large):
        for at, payload in enumerate(mixed() if large == "records" else [""] * 8):
            lines = [*support.LINES]
            lines[3] = f', "headers": {{"large": "{at}{LARGE}", "id": "'
            monkeypatch.setattr(support, "LINES", lines)
            schedule(f"a{at}", payload=payload, share=large == "templates")

    return fill


def test_the_meter_counts_what_is_read(metered):
    metered.schedule("a", payload=LARGE)
    assert ENTRY - 1000 < most_of(lambda: metered.entries.find("a")) < ENTRY


@pytest.mark.parametrize("size", [3_500, 4_500])
def test_of_small_records_no_size_is_asked_for(metered, size):
    for at in range(20):
        metered.schedule(f"a{at}", payload="x" * size)
    metered.raw.config_resetstat()
    assert metered.steps().hand_over().handed_over == 20
    asked = metered.raw.info("commandstats").get("cmdstat_hstrlen", {"calls": 0})["calls"]
    assert asked == (20 if size > SMALL else 0)


def test_a_hand_over_reads_the_list_of_many_lanes_once(metered):
    lanes = [lane_for(queue=f"q{at}") for at in range(300)]
    for at, lane in enumerate(lanes):
        metered.schedule(f"a{at}", queue=f"q{at}")
        metered.entries.pause(lane, f"q{at}")
    shard_steps = metered.steps()
    while shard_steps.hand_over().due is not None:
        pass
    for lane in lanes:
        metered.entries.resume(lane)
    read = most_of(until_empty(lambda: shard_steps.hand_over().handed_over))
    assert len(metered.arrived()) == 300
    # The script reads the list of lanes once; once per lane would be 320 kB more.
    assert read < 2 * SMALL_THINGS


each_large = pytest.mark.parametrize("large", ["records", "templates"])


def is_bounded(read):
    return MAX_BYTES < read <= MAX_BYTES + ENTRY + SMALL_THINGS


@each_large
def test_a_hand_over_reads_no_more_than_its_bound(metered, filled, large):
    filled(metered.schedule, large)
    shard_steps = metered.steps()
    assert is_bounded(most_of(until_empty(lambda: shard_steps.hand_over().handed_over)))
    assert len(metered.arrived()) == (48 if large == "records" else 8)


@each_large
def test_claims_acks_and_nacks_read_no_more_than_their_bound(metered, filled, large):
    filled(metered.schedule_relayed, large)
    shard_steps = metered.steps()

    def relay():
        shard_steps.nack("unsent", shard_steps.claim(20)[0])
        return shard_steps.ack(shard_steps.claim(20)[0])

    assert is_bounded(most_of(until_empty(relay)))
    metered.check()


@pytest.mark.parametrize("clock_ms", [NOW_MS + 30_000, NOW_MS - 3_600_000], ids=["over", "back"])
def test_a_reclaim_reads_no_more_than_its_bound(metered, filled, clock_ms):
    filled(metered.schedule_relayed, "records")
    shard_steps = metered.steps()
    while shard_steps.claim(20)[0]:
        pass
    metered.set_ms(clock_ms)
    assert is_bounded(most_of(until_empty(shard_steps.reclaim)))
    assert metered.raw.zcard(metered.keys["leased"]) == 0
    metered.check()


@each_large
def test_a_listing_reads_no_more_than_its_bound(metered, limits, filled, large):
    limits(page_bytes=MAX_BYTES)
    filled(metered.schedule, large)
    assert is_bounded(most_of(lambda: list(metered.entries.waiting(Listing(0, NOW_MS * 2)))))
