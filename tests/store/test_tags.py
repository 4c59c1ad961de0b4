"""Tags lead to an entry in any place, and to nothing once it has left, by any way."""

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import NewEntry, Outcome
from celery_delayq.core.store.extras import Extras
from celery_delayq.core.store.record import destination_for
from celery_delayq.core.store.scanner_steps import MAX_REFUSALS
from tests.store.support import FAR_MS, NOW_MS, ROUTE, new_record

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


@pytest.fixture
def direct(store):
    store.schedule("a", NOW_MS, extras=TAGGED, share=True)


@pytest.fixture
def leased(store):
    store.schedule_relayed("a", NOW_MS, extras=TAGGED, share=True)
    shard_steps = store.steps(lease=1)
    claimed, *_ = shard_steps.claim(1)
    return shard_steps, claimed


@pytest.fixture
def dead(leased):
    shard_steps, claimed = leased
    shard_steps.nack("dead", claimed, reason="NO_ROUTE")


def schedule(store, task_id, extras=OTHER, conflict="replace", kind="L", **options):
    destination = destination_for(kind, "celery" if kind == "L" else ROUTE)
    record = new_record(task_id, destination, share=True).with_extras(extras)
    (answer,) = store.entries.schedule(
        [NewEntry(task_id, When("at", FAR_MS), record, conflict)], **options
    )
    assert not isinstance(answer, Exception)


@pytest.mark.parametrize("kind", ["schedule", "schedule_relayed"])
def test_each_tag_of_an_entry_leads_to_it(store, kind):
    getattr(store, kind)("a", FAR_MS, extras=TAGGED)
    getattr(store, kind)("b", FAR_MS, extras=Extras("", ("two",)))

    assert tags(store) == {**of("a"), "two": ["a", "b"]}
    assert store.entries.find("a").extras == TAGGED
    store.check()


def test_members_of_a_tag_are_in_the_order_of_their_scheduling(store):
    for number in reversed(range(300)):
        store.schedule(f"a{number}", FAR_MS - number, extras=Extras("", ("t",)))

    assert tags(store) == {"t": [f"a{number}" for number in reversed(range(300))]}


@pytest.mark.usefixtures("direct")
def test_handed_over(store):
    assert store.steps().hand_over().handed_over == 1
    assert tags(store) == {}
    store.check()


def test_a_batch_handed_over(store):
    for number in range(300):
        own = tuple(f"t{number + tag}" for tag in range(16))
        store.schedule(f"a{number}", extras=Extras(f"k{number}", own))

    assert store.steps(batch_size=300).hand_over().handed_over == 300
    assert tags(store) == {}
    assert not store.raw.exists(store.keys["holders"])
    store.check()


def test_published_and_acknowledged(store, leased):
    shard_steps, claimed = leased
    assert tags(store) == of("a")
    assert shard_steps.ack(claimed) == 1
    assert tags(store) == {}
    store.check()


def test_given_back(store, leased):
    shard_steps, claimed = leased
    shard_steps.nack("unknown", claimed)
    assert tags(store) == of("a")
    store.check()


@pytest.mark.usefixtures("leased")
def test_reclaimed(store):
    store.set_ms(NOW_MS + 5000)
    assert store.steps().reclaim() == ["a"]
    assert tags(store) == of("a")
    store.check()


@pytest.mark.parametrize("kind", ["schedule", "schedule_relayed"])
def test_too_late_to_leave(store, kind):
    getattr(store, kind)("a", NOW_MS, extras=Extras("k", TAGGED.tags, 1000))
    store.set_ms(NOW_MS + 5000)
    shard_steps = store.steps()
    shard_steps.hand_over()
    shard_steps.claim(1)
    assert store.record("a") is None
    assert tags(store) == {}
    store.check()


@pytest.mark.usefixtures("direct")
def test_cancelled(store):
    assert store.entries.cancel("a")[0] is Outcome.DONE
    assert tags(store) == {}
    store.check()


@pytest.mark.usefixtures("leased")
def test_cancelled_after_its_lease_ran_out(store):
    store.set_ms(NOW_MS + 5000)
    assert store.entries.cancel("a")[0] is Outcome.UNCERTAIN
    assert tags(store) == {}
    store.check()


@pytest.mark.usefixtures("direct")
def test_rescheduled(store):
    assert store.reschedule("a", When("at", FAR_MS))[0] is Outcome.DONE
    assert tags(store) == of("a")
    assert store.entries.find("a").extras == TAGGED
    store.check()


@pytest.mark.usefixtures("direct")
def test_replaced_by_another_under_its_key(store):
    schedule(store, "b")
    assert tags(store) == {"two": ["b"], "three": ["b"]}
    store.check()


@pytest.mark.usefixtures("direct")
def test_replaced_by_another_of_its_id(store):
    schedule(store, "a")
    assert tags(store) == {"two": ["a"], "three": ["a"]}
    store.check()


@pytest.mark.usefixtures("leased")
def test_superseded_by_the_task_that_runs(store):
    schedule(store, "a", conflict="", kind="R", supersede=True)
    assert tags(store) == {"two": ["a"], "three": ["a"]}
    store.check()


@pytest.mark.usefixtures("direct")
def test_kept(store):
    schedule(store, "b", conflict="keep")
    assert tags(store) == of("a")
    store.check()


@pytest.mark.usefixtures("dead")
def test_dead_and_removed(store):
    assert tags(store) == of("a")
    assert store.entries.cancel("a")[0] is Outcome.DONE
    assert tags(store) == {}
    store.check()


@pytest.mark.usefixtures("dead")
def test_dead_and_rescheduled(store):
    assert store.reschedule("a", When("at", FAR_MS))[0] is Outcome.DONE
    assert tags(store) == of("a")
    assert store.raw.hget(store.keys["holders"], "k") == b"a"
    store.check()


@pytest.mark.usefixtures("dead")
def test_dead_and_scheduled_anew(store):
    schedule(store, "a", conflict="keep")
    assert tags(store) == {"two": ["a"], "three": ["a"]}
    store.check()


def test_refused_until_it_is_dead_and_removed(store):
    store.raw.set("broken", "no list")
    store.schedule("a", NOW_MS, to="broken", extras=TAGGED, share=True)
    shard_steps = store.steps()
    for attempt in range(MAX_REFUSALS):
        assert tags(store) == of("a")
        store.set_ms(NOW_MS + attempt * 3_600_000)
        shard_steps.hand_over()
    assert store.places("a") == ["dead"]
    assert store.entries.cancel("a")[0] is Outcome.DONE
    assert tags(store) == {}
    store.check()


def test_tags_and_key_of_the_longest_survive_everything(store):
    longest = Extras("k" * 255, tuple(f"{number:x}" + "é" * 127 for number in range(16)), 10**15)
    store.schedule_relayed("a", NOW_MS, extras=longest, share=True)
    shard_steps = store.steps()

    shard_steps.nack("unknown", shard_steps.claim(1)[0])
    store.reschedule("a", When("at", FAR_MS))

    assert store.entries.find("a").extras == longest
    assert b"a" in store.entries.find("a").message
    store.check()
