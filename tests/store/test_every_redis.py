"""Every script, once, in one story, on each version of Redis on this machine, and on fakeredis."""

import pytest

from celery_delayq.clock import When
from celery_delayq.store import Outcome, State
from celery_delayq.store.scripts import load
from tests.store.support import FAR_MS, NOW_MS, FakeStore


def play(store):
    """Take one entry or more through every step there is."""
    first, second = store.engine(), store.engine(lease=1)
    assert store.schedule("now", share=True) == NOW_MS
    assert store.schedule("later", when=When("after", 86_400_000)) == FAR_MS
    assert first.hand_over().handed_over == 1
    assert store.arrived() == ["now"]
    assert store.entries.cancel("now")[0] is Outcome.HANDED_OVER

    assert store.entries.find("later").due_ms == FAR_MS
    assert [entry.task_id for entry in store.entries.waiting(0, FAR_MS + 1)] == ["later"]
    assert store.entries.reschedule("later", When("by", -1000)) == (Outcome.DONE, FAR_MS - 1000)
    assert store.entries.cancel("later")[0] is Outcome.DONE
    assert store.entries.cancel("later")[0] is Outcome.NOT_FOUND

    for task_id in ("sent", "refused", "dead", "lost"):
        store.schedule_relayed(task_id, share=task_id != "dead")
    (sent, refused, dead), _ = first.claim(3)
    (lost,), _ = second.claim(3)
    assert store.entries.cancel("sent")[0] is Outcome.IN_FLIGHT
    assert first.ack([sent]) == 1
    assert first.nack("refused", [refused], wait=2) == 1
    assert first.nack("dead", [dead], reason="NO_ROUTE") == 1
    store.set_ms(NOW_MS + 1000)
    assert first.reclaim() == ["lost"]
    assert second.ack([lost]) == 0
    assert store.entries.state("dead") is State.DEAD
    assert store.entries.find("dead").reason == "NO_ROUTE"
    store.check()

    counts = store.entries.counts()
    assert (counts.scheduled, counts.in_flight, counts.dead, counts.scanners) == (2, 0, 1, 1)
    assert (counts.next_due_ms, counts.now_ms) == (NOW_MS, NOW_MS + 1000)
    first.leave()
    assert store.entries.counts().scanners == 0


def test_every_step_works_on_every_redis(each_redis, store_on):
    play(store_on(each_redis))


def test_every_step_works_on_fakeredis():
    play(FakeStore())


def test_the_story_calls_every_script(store, monkeypatch):
    called, call = set(), type(store.scripts).call

    def noting(self, name, **arguments):
        called.add(name)
        return call(self, name, **arguments)

    monkeypatch.setattr(type(store.scripts), "call", noting)
    play(store)
    assert called == load().keys()


@pytest.mark.parametrize("prefix", ["delayq", "other.app"])
def test_nothing_is_written_outside_of_the_prefix(store_on, redis_server, redis_url, prefix):
    store = store_on(redis_server, prefix=prefix)
    play(store)
    own = f"{{{prefix}:0}}:".encode()
    foreign = {key for key in store.raw.scan_iter("*") if not key.startswith(own)}
    assert foreign == {b"celery", b"test:clock"}
