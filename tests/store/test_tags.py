"""Tags lead to an entry in any place, and to nothing once it has left, by any way."""

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import NewEntry, Outcome
from celery_delayq.core.store.changes import Removal
from celery_delayq.core.store.record import Extras, header_for
from celery_delayq.core.store.schedule import Addition
from tests.store.support import FAR_MS, PLACES, ROUTE, new_record

pytestmark = pytest.mark.core

TAGGED = Extras("k", ("one", "two", "ü"), 10**12)
OTHER = Extras("k", ("two", "three"))


def tags(store):
    """Ids by tag."""
    found = {}
    for one in store.raw.zrange(store.keys["tags"], 0, -1):
        tag, _, member = one.partition(b"\0")
        found.setdefault(tag.decode(), []).append(member[6:].decode())
    return found


def of(*ids):
    return {tag: list(ids) for tag in sorted(TAGGED.tags)}


def of_other(task_id):
    return {"two": [task_id], "three": [task_id]}


def schedule(store, task_id, extras=OTHER, conflict="replace", kind="L", **options):
    destination = header_for(kind, "celery" if kind == "L" else ROUTE)
    record = new_record(task_id, destination, share=True).with_extras(extras)
    (answer,) = store.entries.schedule(
        [NewEntry(task_id, When("at", FAR_MS), record, conflict)], Addition(**options)
    )
    assert not isinstance(answer, Exception)


@pytest.mark.parametrize("kind", ["schedule", "schedule_relayed"])
def test_each_tag_of_an_entry_leads_to_it(store, kind):
    getattr(store, kind)("a", FAR_MS, extras=TAGGED)
    getattr(store, kind)("b", FAR_MS, extras=Extras("", ("two",)))

    assert tags(store) == {**of("a"), "two": ["a", "b"]}
    assert store.entries.find("a").extras == TAGGED
    store.check()


@pytest.mark.parametrize("place", PLACES)
def test_in_every_place_an_entry_has_its_tags(store, place):
    store.at(place, extras=TAGGED)
    assert tags(store) == of("a")
    store.check()


def test_members_of_a_tag_are_in_the_order_of_their_scheduling(store):
    for number in reversed(range(300)):
        store.schedule(f"a{number}", FAR_MS - number, extras=Extras("", ("t",)))

    assert tags(store) == {"t": [f"a{number}" for number in reversed(range(300))]}


def reclaim(store, _):
    assert store.steps().reclaim() == ["a"]


def cancel(expected):
    def step(store, _):
        assert store.entries.change("a", Removal())[0] is expected

    return step


def move(store, _):
    assert store.reschedule("a", When("at", FAR_MS))[0] is Outcome.DONE
    assert store.entries.find("a").extras == TAGGED
    assert store.raw.hget(store.keys["holders"], "k") == b"a"


# The place of the entry, a step, and the tags after it.
STEPS = {
    "handed over": ("due", lambda store, _: store.steps().hand_over(), {}),
    "acknowledged": ("leased", lambda store, claims: store.steps().ack(claims), {}),
    "given back": ("leased", lambda store, claims: store.steps().nack("unknown", claims), of("a")),
    "reclaimed": ("lapsed", reclaim, of("a")),
    "cancelled": ("due", cancel(Outcome.DONE), {}),
    "cancelled after its lease": ("lapsed", cancel(Outcome.UNCERTAIN), {}),
    "rescheduled": ("due", move, of("a")),
    "replaced under its key": ("due", lambda store, _: schedule(store, "b"), of_other("b")),
    "replaced by its id": ("due", lambda store, _: schedule(store, "a"), of_other("a")),
    "superseded by the running task": (
        "leased",
        lambda store, _: schedule(store, "a", conflict="", kind="R", supersede=True),
        of_other("a"),
    ),
    "kept": ("due", lambda store, _: schedule(store, "b", conflict="keep"), of("a")),
    "dead and removed": ("dead", cancel(Outcome.DONE), {}),
    "dead and rescheduled": ("dead", move, of("a")),
    "dead and scheduled anew": (
        "dead",
        lambda store, _: schedule(store, "a", conflict="keep"),
        of_other("a"),
    ),
}


@pytest.mark.parametrize(("place", "step", "expected"), STEPS.values(), ids=STEPS)
def test_a_step_leaves_the_tags_of_what_waits_and_no_others(store, place, step, expected):
    claims = store.at(place, extras=TAGGED)
    step(store, claims)
    assert tags(store) == expected
    store.check()


def test_a_batch_that_is_handed_over_takes_all_its_tags_and_keys_along(store):
    for number in range(300):
        own = tuple(f"t{number + tag}" for tag in range(16))
        store.schedule(f"a{number}", extras=Extras(f"k{number}", own))

    assert store.steps(batch_size=300).hand_over().handed_over == 300
    assert tags(store) == {}
    assert not store.raw.exists(store.keys["holders"])
    store.check()


def test_tags_and_key_of_the_longest_survive_everything(store):
    longest = Extras("k" * 255, tuple(f"{number:x}" + "é" * 127 for number in range(16)), 10**15)

    store.at("uncertain", extras=longest)
    store.reschedule("a", When("at", FAR_MS))

    assert store.entries.find("a").extras == longest
    assert b"a" in store.entries.find("a").message
    store.check()
