"""The outcome of each change for an entry in each place; one that is too late changes nothing."""

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Outcome
from celery_delayq.core.store.changes import Removal, Rewrite
from celery_delayq.core.store.record import header_for
from tests.store.support import FAR_MS, NOW_MS, ROUTE, edited, new_record

DONE, UNCERTAIN = Outcome.DONE, Outcome.UNCERTAIN
IN_FLIGHT, HANDED_OVER, NOT_FOUND = Outcome.IN_FLIGHT, Outcome.HANDED_OVER, Outcome.NOT_FOUND
CHANGED = (DONE, UNCERTAIN)
CORE = pytest.mark.core


def at(first, *others):
    """One attempt at it ends so, or several, one after the other."""

    def take(store):
        store.at(first)
        for place in others:
            store.take(place, "a")

    return take


def take_back(store):
    store.at("lapsed")
    store.steps().reclaim()


def anew(store):
    store.at("lapsed")
    store.entries.change("a", Removal())
    store.schedule_relayed("a")


STATES = {
    "never scheduled": (lambda _: None, NOT_FOUND),
    "cancelled": (at("cancelled"), NOT_FOUND),
    "in its list": (at("left"), HANDED_OVER),
    "published": (lambda store: store.at("left", relayed=True), HANDED_OVER),
    "leased": (at("leased"), IN_FLIGHT),
    "due": (at("due"), DONE),
    "due for a relay": (at("relay"), DONE),
    "parked": (at("parked"), DONE),
    "not sent": (at("unsent"), DONE),
    "refused": (at("refused"), DONE),
    "dead": (at("unsent", "dead"), DONE),
    "anew after an uncertain one": (anew, DONE),
    "under a lease that ran out": (at("lapsed"), UNCERTAIN),
    "taken back": (take_back, UNCERTAIN),
    "without an answer": (at("uncertain"), UNCERTAIN),
    "without an answer, then refused": (at("uncertain", "refused"), UNCERTAIN),
    "without an answer, then dead": (at("uncertain", "dead"), UNCERTAIN),
}


def seen(store):
    return store.entries.find("a") or store.entries.find("bystander")


def edit(store, entry, **options):
    return store.entries.change("a", Rewrite(entry.record, edited(entry, "new", **options)))[0]


def release(store, entry):
    place = ("L", "celery") if entry.record.is_for_list else ("R", ROUTE)
    new = entry.record.released(new_record("a", header_for(*place), "new"))
    return store.entries.change("a", Rewrite(entry.record, new, releases=True))[0]


def reschedule(how, ms):
    return lambda store, _=None: store.reschedule("a", When(how, ms))[0]


CHANGES = [
    pytest.param(lambda store, _: store.entries.change("a", Removal())[0], marks=CORE, id="cancel"),
    pytest.param(reschedule("at", FAR_MS), marks=CORE, id="reschedule at"),
    pytest.param(reschedule("after", 5), marks=CORE, id="reschedule after"),
    pytest.param(reschedule("by", 5), marks=CORE, id="reschedule by"),
    pytest.param(edit, id="edit"),
    pytest.param(lambda store, entry: edit(store, entry, kind="L"), id="edit of the kind"),
    pytest.param(release, id="release"),
]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_tells_what_it_did_or_why_it_did_nothing(store, state, change):
    bring, outcome = STATES[state]
    store.schedule("bystander", FAR_MS, share=True)
    bring(store)
    if change is release and "dead" in state:
        outcome = Outcome.UNCHANGED
    before = store.snapshot()

    assert change(store, seen(store)) is outcome

    assert (store.snapshot() == before) == (outcome not in CHANGED)
    store.check()


@pytest.mark.parametrize("state", [one for one, (_, how) in STATES.items() if how in CHANGED])
@CORE
def test_a_cancelled_entry_is_gone_from_every_key(store, state):
    STATES[state][0](store)
    store.raw.delete(store.keys["paused"])

    store.entries.change("a", Removal())

    names = ("due", "relay", "leased", "refused", "parked", "dead", "records", "templates")
    names += ("template_uses", "claims", "errors")
    assert [name for name in names if store.raw.exists(store.keys[name])] == []


def moved_there_and_back(store):
    for step_ms in (1, -1):
        store.reschedule("a", When("by", step_ms))


def scheduled_anew(store):
    store.entries.change("a", Removal())
    store.schedule("a", FAR_MS, payload="theirs", share=True)


def anew_in_the_same_moment(store):
    store.set_ms(NOW_MS)
    store.entries.change("a", Removal())
    store.schedule_relayed("a", FAR_MS, payload="theirs", share=True)


SINCE = {
    "moved": reschedule("by", 1),
    "moved there and back": moved_there_and_back,
    "scheduled anew": scheduled_anew,
    "scheduled anew in the same moment": anew_in_the_same_moment,
    "edited": lambda store: store.edit("a", "theirs"),
}


@pytest.mark.parametrize("since", SINCE.values(), ids=SINCE)
@pytest.mark.parametrize("change", [edit, release])
def test_an_entry_changed_since_it_was_read_stays_as_it_is(store, change, since):
    store.schedule("a", FAR_MS, share=True)
    read = seen(store)
    store.set_ms(NOW_MS + 1)
    since(store)
    before = store.snapshot()

    assert change(store, read) is Outcome.UNCHANGED

    assert store.snapshot() == before


@CORE
def test_in_flight_ends_with_the_lease_to_the_millisecond(store):
    store.at("leased", lease=30)
    store.set_ms(NOW_MS + 29_999)
    assert store.entries.change("a", Removal())[0] is IN_FLIGHT
    store.set_ms(NOW_MS + 30_000)
    outcome, change = store.entries.change("a", Removal())
    assert (outcome, bool(change.cancelled.message)) == (UNCERTAIN, True)


@CORE
def test_the_answer_handed_over_outlives_ten_thousand_others(store):
    store.flood(10_100)
    store.schedule("a", NOW_MS - 1)
    shard_steps = store.steps(batch_size=1000)
    while shard_steps.hand_over().handed_over:
        pass
    for task_id in ("a", "a10099"):
        assert store.entries.change(task_id, Removal())[0] is HANDED_OVER


@CORE
def test_only_done_is_true():
    assert [outcome for outcome in Outcome if outcome] == [DONE]
