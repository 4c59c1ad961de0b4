"""How many Redis commands one call takes, in a store that has run for a while."""

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Outcome, State
from celery_delayq.core.store.changes import Removal
from celery_delayq.core.store.keys import target_of_key
from celery_delayq.core.store.record import Extras, lane_for
from tests.store.support import FAR_MS

pytestmark = pytest.mark.core

PAST_MS = 1

CALLS = {
    "schedule": (13, lambda store: store.schedule("new", FAR_MS, share=True)),
    "cancel": (11, lambda store: store.entries.change("a", Removal(tells=False))),
    "cancel, owing REVOKED": (14, lambda store: store.entries.change("a", Removal("caller"))),
    "reschedule": (8, lambda store: store.reschedule("a", When("at", FAR_MS + 1))),
    "get": (4, lambda store: store.entries.find("a")),
    "get of an unknown id": (4, lambda store: store.entries.find("nobody")),
    "cancel of an unknown id": (10, lambda store: store.entries.change("nobody", Removal())),
    "get by key": (5, lambda store: store.entries.find(target_of_key("key"))),
    "keyed replace": (
        25,
        lambda store: store.schedule(
            "new", FAR_MS, share=True, extras=Extras("key"), conflict="replace", revokes="replaced"
        ),
    ),
}


@pytest.fixture
def busy(real_store):
    """A store whose scripts are loaded, and in which a scanner has looked around."""
    store, scanner = real_store, real_store.steps()
    for _, call in CALLS.values():
        for task_id, key in (("a", ""), ("b", ""), ("keyed", "key")):
            if not store.record(task_id):
                store.schedule(task_id, FAR_MS, share=True, extras=Extras(key))
        call(store)
        store.entries.change("new", Removal())
    store.entries.change("a", Removal())
    store.schedule("a", FAR_MS, share=True)
    store.schedule("keyed", FAR_MS, share=True, extras=Extras("key"))
    store.raw.delete(store.keys["outbox"], store.keys["outbox_messages"])
    scanner.hand_over(asleep=5)
    return store


def commands_of(store, call) -> int:
    store.raw.config_resetstat()
    call()
    told = store.raw.info("commandstats")
    others = ("cmdstat_evalsha", "cmdstat_config|resetstat")
    return sum(one["calls"] for name, one in told.items() if name not in others)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_takes_no_more_commands_than(busy, name):
    most, call = CALLS[name]
    assert commands_of(busy, lambda: call(busy)) <= most


def put_into_pause(store):
    store.entries.pause(lane_for(queue="celery"), "celery")


def refuse(store):
    store.schedule("list", PAST_MS, to="somebodys")
    store.raw.set("somebodys", "text")
    store.steps().hand_over()


def lease(store):
    store.at("leased", "relayed", due_ms=PAST_MS)


def kill(store, place="dead"):
    store.at(place, "relayed", due_ms=PAST_MS)


def spoil(store):
    store.schedule("spoilt", PAST_MS)
    store.raw.hset(store.keys["records"], "spoilt", "x")
    store.steps().hand_over()


def tidy(store) -> bytes | None:
    return store.raw.hget(store.keys["meta"], "tidy")


@pytest.mark.parametrize("happens", [refuse, lease, kill, spoil])
def test_the_store_is_taken_for_tidy_until_something_happens(busy, happens):
    assert tidy(busy) == b"wu"
    happens(busy)
    assert tidy(busy) is None
    busy.steps().hand_over()
    assert tidy(busy) == b"u"


def test_while_something_is_paused_each_entry_still_waits_and_then_it_is_tidy_again(busy):
    put_into_pause(busy)
    assert tidy(busy) == b"w"
    busy.steps().hand_over()
    assert tidy(busy) == b"w"
    busy.entries.resume(lane_for(queue="celery"))
    busy.steps().hand_over()
    assert tidy(busy) == b"wu"


def test_a_pause_of_a_store_that_is_not_tidy_says_nothing_of_it(busy):
    kill(busy)
    put_into_pause(busy)
    assert tidy(busy) is None


@pytest.mark.parametrize("happens", [put_into_pause, refuse, lease, kill, spoil])
def test_to_get_an_entry_of_an_untidy_store_takes_no_more_than_six_commands(busy, happens):
    happens(busy)
    busy.entries.find("b")
    assert commands_of(busy, lambda: busy.entries.find("b")) <= 6
    busy.steps().hand_over()
    assert commands_of(busy, lambda: busy.entries.find("b")) <= 6


def park(store):
    store.schedule("parked", PAST_MS)
    store.steps().hand_over()


def test_a_parked_entry_is_found_though_each_entry_waited_when_the_pause_began(busy):
    put_into_pause(busy)
    scanner = busy.steps()
    scanner.hand_over()
    assert tidy(busy) == b"w"
    busy.schedule("parked", PAST_MS)
    scanner.hand_over()
    assert tidy(busy) is None
    assert busy.entries.find("parked").state is State.PAUSED
    assert busy.entries.change("parked", Removal())[0] is Outcome.DONE
    assert busy.places("parked") == []


def test_an_entry_coming_back_from_a_lost_lane_has_its_true_state(busy):
    """When a scanner looked, the key of pauses was gone, so it knew of none."""
    put_into_pause(busy)
    park(busy)
    busy.raw.delete(busy.keys["paused"])
    busy.steps().hand_over()
    assert tidy(busy) == b"u"
    busy.entries.resume(lane_for(queue="celery"), 0.001)
    assert tidy(busy) is None
    assert busy.entries.find("parked").state is State.PAUSED


def test_an_entry_that_lost_its_place_makes_it_untidy_at_the_next_heartbeat(busy):
    busy.raw.zremrangebyrank(busy.keys["due"], 0, 0)
    busy.steps().hand_over()
    assert tidy(busy) == b"u"
    assert busy.entries.find("b").state is State.DEAD


def test_an_entry_whose_attempt_failed_is_cancelled_as_uncertain(busy):
    kill(busy, "uncertain")
    busy.steps().hand_over()
    assert busy.entries.change("relayed", Removal())[0] is Outcome.UNCERTAIN
