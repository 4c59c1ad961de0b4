"""A store that is moved to another number of shards is the same store to all who use it."""

import contextlib
from dataclasses import replace

import pytest

from celery_delayq.care.resharding import Resharding
from celery_delayq.store.keys import Keys
from tests.format.filling import app_of, fill
from tests.format.keys import read

OF_THE_MOMENT = ("made_by", "time_ms", "store", "shards")


@pytest.fixture
def raw(redis_server, redis_url):
    with redis_server.client() as client:
        yield client


@pytest.fixture
def app(redis_url):
    """Makes the app of processes with so many shards."""
    with contextlib.ExitStack() as stack:
        yield lambda shards, **conf: stack.enter_context(
            contextlib.closing(app_of(redis_url, delayq_shards=shards, **conf))
        )


@pytest.fixture
def filled(redis_url, raw):
    """A store of one shard with an entry of each kind; its calls last 0.1 s at most."""
    fill(redis_url, raw)
    raw.hset(Keys("delayq")["meta"], "timeout", 100)


def reshard(delayq, shards):
    with contextlib.closing(Resharding(delayq.services)) as resharding:
        assert resharding.run(shards)


def seen(delayq):
    """All that users see of a store."""
    lines = [
        {name: value for name, value in line.items() if name not in OF_THE_MOMENT}
        for line in delayq.dump()
    ]
    left = ["handed over", "handed over under key", "cancelled", "skipped", "owed"]
    return {
        "dump": sorted(lines, key=lambda line: (line["kind"], line.get("id", ""))),
        "left": [replace(delayq.services.entries.departure(one), now_ms=0) for one in left],
        "counts": replace(delayq.services.entries.counts(), scanners=0, now_ms=0),
        "history": sorted(map(str, delayq.history(1000))),
        "pauses": sorted(
            str(replace(one, rate=one.rate and round(one.rate, 5)))
            for one in delayq.services.entries.pauses()
        ),
        "tagged": sorted(one.id for one in delayq.select(tag="user:7")),
        "found": sorted((one.kind, one.id) for one in delayq.check()),
    }


def test_a_store_is_the_same_over_one_three_two_and_one_shard(filled, app):
    delayq = app(1)
    before = seen(delayq)
    for shards in (3, 2, 1):
        reshard(delayq, shards)
        delayq = app(shards)
        after = seen(delayq)
        for name, told in before.items():
            assert after[name] == told, name
