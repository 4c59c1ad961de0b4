"""A check finds what is inconsistent, and a repair mends it."""

import random
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest

from celery_delayq.contrib.care import check
from celery_delayq.contrib.care.check import COUNTED, KINDS, check_store
from celery_delayq.core.clock import When
from celery_delayq.core.store import Entries, NewEntry, Outcome, State
from celery_delayq.core.store.changes import Move, Removal
from celery_delayq.core.store.keys import target_of_key
from celery_delayq.core.store.record import Extras, header_for, lane_for
from tests.operations.table import fitting
from tests.store.support import FAR_MS, INDEXES, MEMBERSHIP, NOW_MS, ROUTE, new_record, template_of

# A check finds inconsistencies, by their kind, and ignores operations in progress.


EXTRAS = Extras("k1", ("t1", "t2"))
PARKED = b"*" * 7 + b"\0" * 7 + b"L"  # the bytes before a parked member


def key(store, name):
    return store.keys[name]


def template(store):
    return template_of(store.record("list"))


def second_place(store):
    store.raw.zadd(key(store, "relay"), {b"\xff" * 6 + b"list": NOW_MS})


def set_text(text):
    return lambda store: store.raw.hset(key(store, "templates"), template(store), text)


def set_uses(uses):
    return lambda store: store.raw.hset(key(store, "template_uses"), template(store), uses)


def member_in(store, name):
    record = store.record(name)
    number = record.index(b":celery") + len(b":celery")
    return record[number : number + 6] + name.encode()


def tagged(store, tag):
    return tag + b"\0" + member_in(store, "tagged")


# By the kind of the finding, and the case of it.
SPOIL = {
    "record_without_place": lambda store: store.raw.delete(key(store, "due")),
    "place_without_record": lambda store: store.raw.zadd(key(store, "due"), {b"......x": 1}),
    "place_without_record: dead": lambda store: store.raw.zadd(key(store, "dead"), {b"......x": 1}),
    "second_place": second_place,
    "record_without_place: parked": lambda store: store.raw.delete(key(store, "paused")),
    "unreadable_record": lambda store: store.raw.hset(key(store, "records"), "list", "2L?"),
    "unreadable_record: template gone": lambda store: store.raw.delete(key(store, "templates")),
    "unreadable_record: template damaged": set_text("\n" * 9),
    "leftover: claim": lambda store: store.raw.hset(key(store, "claims"), "x", "1:0:0:1:"),
    "leftover: error": lambda store: store.raw.hset(key(store, "errors"), "x", "?"),
    "wrong_key: of no entry": lambda store: store.raw.hset(key(store, "holders"), "k", "x"),
    "wrong_key: lost": lambda store: store.raw.hdel(key(store, "holders"), "k1"),
    "wrong_tag: of no entry": lambda store: store.raw.zadd(key(store, "tags"), {b"t\0......x": 0}),
    "wrong_tag: lost": lambda store: store.raw.zrem(key(store, "tags"), tagged(store, b"t2")),
    "wrong_count: none": lambda store: store.raw.hset(key(store, "templates"), "x", "text"),
    "wrong_count: too low": set_uses(3),
    "wrong_count: too high": set_uses(9),
    "owed_revoked: no message": lambda store: store.raw.zadd(key(store, "outbox"), {"x": NOW_MS}),
    "owed_revoked: no time": lambda store: store.raw.zrem(key(store, "outbox"), "revoked"),
    "number_too_low": lambda store: store.raw.hset(key(store, "meta"), "seq", "1"),
}


# The same kinds, of entries that exist, or nearly do.
ALSO = {
    "wrong_key": lambda store: store.raw.hset(key(store, "holders"), "other", "tagged"),
    "wrong_tag": lambda store: store.raw.zadd(key(store, "tags"), {tagged(store, b"t3"): 0}),
    "place_without_record": lambda store: store.raw.zadd(key(store, "parked"), {PARKED + b"x": 0}),
    "second_place": lambda store: store.raw.zadd(
        key(store, "parked"), {PARKED + member_in(store, "tagged"): 0}
    ),
}


def kind_of(spoilt):
    return spoilt.partition(":")[0]


def kinds(store):
    return {one.kind for one in check_store(store.entries)}


def test_every_kind_but_an_unreadable_record_has_a_repair_and_each_is_tried():
    assert set(map(kind_of, SPOIL)) == KINDS.keys()
    assert {one for one, kind in KINDS.items() if not kind.repair} == {"unreadable_record"}


def test_a_finding_comes_once_in_a_large_store(store):
    store.flood(500)
    store.raw.hdel(key(store, "records"), "a7")
    store.raw.hincrby(key(store, "template_uses"), template_of(store.record("a0")), -1)
    found = list(check_store(store.entries))
    assert [(one.kind, one.id) for one in found] == [("place_without_record", "a7")]
    assert str(found[0]).startswith("a7: a place has no record")


def test_a_last_number_that_is_too_low_is_told_of_once_and_not_where_it_is_lost(store):
    store.flood(500)
    store.raw.hset(key(store, "meta"), "seq", 400)
    (finding,) = check_store(store.entries)
    assert str(finding).startswith("seq: the last insertion number is ")
    store.raw.hset(key(store, "meta"), "seq", 500)
    assert kinds(store) == set()
    store.raw.hdel(key(store, "meta"), "seq")  # the next one begins anew, above all
    assert kinds(store) == set()


def test_of_what_is_changed_meanwhile_nothing_is_reported(store):
    store.flood(200, FAR_MS)
    done = threading.Event()

    def change(number):
        entries, dice = Entries([store.new_scripts()], MEMBERSHIP), random.Random(number)
        scripts, shard_steps = entries.shards[0].scripts, store.steps(lease=30)
        while not done.is_set():
            task_id = f"a{dice.randrange(200)}"
            step = dice.randrange(5)
            if step == 0:
                entries.change(task_id, Removal())
            elif step == 1:
                entries.change(task_id, Move(When("at", NOW_MS + dice.randrange(2) * 1000)))
            elif step == 2:
                shard_steps.hand_over()
                shard_steps.ack(shard_steps.claim(3)[0])
            elif step == 3:
                shard_steps.nack("unknown", shard_steps.claim(3)[0])
            else:
                again(entries, task_id, dice)
        scripts.connection.close()

    def again(entries, task_id, dice):
        to = header_for(*(("R", ROUTE) if dice.random() < 0.5 else ("L", "celery")))
        extras = Extras(dice.choice(("", "k1", "k2")), dice.choice(((), ("t1",), ("t1", "t2"))))
        record = new_record(task_id, to, share=True).with_extras(extras)
        when = When("at", NOW_MS + dice.randrange(2) * 1000)
        entries.schedule([NewEntry(task_id, when, record, dice.choice(("", "keep", "replace")))])

    with ThreadPoolExecutor(3) as pool:
        changes = [pool.submit(change, number) for number in range(3)]
        try:
            found = [one for _ in range(20) for one in check_store(store.entries)]
        finally:
            done.set()
        for each in changes:
            each.result(30)
    # An entry that comes back from a lease waits without its key, while another entry has it. When
    # that one has left, no entry has the key.
    assert [one for one in found if (one.kind, one.part) != ("wrong_key", "records")] == []


# A check reads in slices: small ones at first, larger ones as long as they are light.

FIRST, MOST = 20, 200


@pytest.fixture
def counts_of(store):
    """How many fields each slice of a part requested during a check."""

    def look():
        asked = defaultdict(list)

        def note(name, given):
            if name == "check":
                asked[given["part"]].append(given["count"])

        store.scripts.on_call = note
        assert list(check_store(store.entries)) == []
        return asked

    return look


def test_slices_of_small_entries_grow(store, counts_of):
    store.flood(3000, FAR_MS)
    counts = counts_of()
    for part in ("records", "due"):
        assert counts[part][:5] == [FIRST, 40, 80, 160, MOST]
        assert set(counts[part][4:]) == {MOST}


def test_slices_of_large_values_stay_small(store, counts_of):
    large = "x" * 60_000
    for number in range(150):  # Redis returns a small set in one slice, whatever its COUNT
        extras = Extras(f"{number:0100}", ("t",))
        store.schedule(f"a{number}", FAR_MS, payload=large, extras=extras)
        store.raw.hset(store.keys["outbox_messages"], f"b{number}", large)
        store.raw.zadd(store.keys["outbox"], {f"b{number}": NOW_MS})
    counts = counts_of()
    for part in ("records", "due", "tags", "holders", "outbox_messages"):
        assert len(counts[part]) > 150 / FIRST
        assert max(counts[part]) == FIRST


# Repair: it mends a check's findings, so that entries work again, and changes nothing else.


TOLD = {kind for kind, one in KINDS.items() if not one.repair}


def repaired(store, found, entries=None):
    some = check.repair_store(entries or store.entries, found)
    return [one for each in some for one in each]


def mended(store, found, entries=None):
    """The results of repairing these findings."""
    return [one.what for one in repaired(store, found, entries)]


def repair(store, *, of=None):
    """Mend the findings; returns the result of each: (kind, id) -> what."""
    found = [one for one in check_store(store.entries) if of is None or one.kind in of]
    became = repaired(store, found)
    assert len(became) == len(found)
    return {(one.finding.kind, one.finding.id): one.what for one in became}


def drain(store):
    """Let time pass, and deliver all entries that can go: (id, whether marked) of each."""
    store.set_ms(FAR_MS + 1)
    shard_steps, gone = store.steps(), []
    for _ in range(3):
        shard_steps.reclaim()
        while (seen := shard_steps.hand_over()).handed_over or seen.is_past(seen.due):
            pass
        for entry in shard_steps.claim(50)[0]:
            gone.append((entry.task_id, bool(entry.uncertain)))
            shard_steps.ack([entry])
    gone += [(task_id, False) for task_id in store.arrived()]
    store.raw.delete("celery")
    return sorted(gone)


@pytest.mark.parametrize("spoilt", SPOIL)
def test_a_check_finds_each_kind_and_changes_nothing_and_repair_mends_it_or_says_that_it_is_left(
    store, spoilt
):
    fitting(store)
    store.schedule("tagged", FAR_MS, extras=EXTRAS)
    assert kinds(store) == set()
    SPOIL[spoilt](store)
    kind = kind_of(spoilt)
    before = store.contents()
    assert kind in kinds(store)
    assert store.contents() == before
    became = repair(store)
    if kind in TOLD:
        assert {what for (one, _), what in became.items() if one == kind} == {"left"}
        assert kinds(store) == TOLD & kinds(store)
        records = store.keys["records"].encode()
        assert store.contents()[records] == before[records]
    else:
        assert kinds(store) == set()
    assert set(repair(store).values()) <= {"left"}


@pytest.mark.parametrize("kind", ALSO)
def test_a_finding_about_an_entry_that_exists_or_nearly_does_is_mended(store, kind):
    store.schedule("tagged", FAR_MS, extras=EXTRAS)
    store.schedule("plain", FAR_MS)
    before = store.contents()
    ALSO[kind](store)
    assert kinds(store) == {kind}
    repair(store)
    assert store.contents() == before
    store.check()


@pytest.mark.parametrize("spoilt", [one for one in SPOIL if kind_of(one) != COUNTED])
def test_repair_changes_nothing_if_the_finding_is_gone_by_then(store, spoilt):
    """Before the repair of a finding, its entry was put right, or has left."""
    fitting(store)
    store.schedule("tagged", FAR_MS, extras=EXTRAS)
    before, whole = store.snapshot(), store.contents(all_keys=True)
    SPOIL[spoilt](store)
    found = [
        one for one in check_store(store.entries) if one.kind == kind_of(spoilt) and one.repair
    ]
    put(store, whole)
    assert store.snapshot() == before
    assert kinds(store) == set()
    assert mended(store, found) == ["gone"] * len(found)
    assert store.snapshot() == before
    store.raw.flushdb()
    store.set_ms(NOW_MS)
    assert mended(store, found) == ["gone"] * len(found)
    assert store.snapshot() == {}


def put(store, contents):
    store.raw.flushdb()
    for name, value in contents.items():
        if isinstance(value, dict):
            store.raw.hset(name, mapping=value)
        elif isinstance(value, bytes):
            store.raw.set(name, value)
        else:
            store.raw.zadd(name, dict(value))


PLACES = ("record_without_place", "place_without_record", "second_place")
OF = {
    **dict.fromkeys(INDEXES, PLACES),
    "records": ("record_without_place", "wrong_tag", "wrong_key", "number_too_low"),
    "tags": ("wrong_tag",),
    "holders": ("wrong_key",),
    "claims": ("leftover",),
    "errors": ("leftover",),
    "outbox": ("owed_revoked",),
    "outbox_messages": ("owed_revoked",),
    "meta": ("number_too_low",),
    "template_uses": (COUNTED,),
    "templates": (COUNTED,),
}


def made_up(store):
    """Invented findings: of each kind that a key's fields can have, about each of its fields."""
    for part, of_part in OF.items():
        is_index = store.raw.type(store.keys[part]) == b"zset"
        fields = store.raw.zrange(store.keys[part], 0, -1) if is_index else None
        for field in fields if fields is not None else store.raw.hkeys(store.keys[part]):
            for kind in of_part:
                yield check.Finding(kind, field.decode(errors="replace"), part, field)


def test_repair_changes_nothing_for_a_made_up_finding(store):
    ready = fitting(store)
    store.schedule("tagged", FAR_MS, extras=EXTRAS)
    store.schedule_relayed("tried", NOW_MS, extras=Extras("k3"))
    store.take("refused", "tried", "waiting", by=ready.steps)
    before, found = store.snapshot(), list(made_up(store))
    assert {one.kind for one in found} == {kind for kind, one in KINDS.items() if one.repair}
    assert set(mended(store, found)) == {"gone"}
    assert store.snapshot() == before


# Entries that lost their place.


@pytest.mark.parametrize(("put_it", "index"), [("schedule", "due"), ("schedule_relayed", "relay")])
def test_an_entry_that_lost_its_place_early_waits_for_its_due_time_again(store, put_it, index):
    getattr(store, put_it)("a", FAR_MS, extras=EXTRAS)
    before = store.contents()
    store.raw.delete(key(store, index), key(store, "holders"))
    assert repair(store)["record_without_place", "a"] == "back"
    assert store.contents() == before
    store.check()
    assert drain(store) == [("a", False)]


@pytest.mark.parametrize("relayed", [False, True])
def test_repair_says_which_entries_will_be_skipped_as_too_late_by_now(store, relayed):
    """Entries that come back from a pause are excused, but there is no record of them as parked."""
    extras = Extras(grace_ms=1000)
    store.at("parked", relayed=relayed, lane=lane_for(), extras=extras)
    store.at("relay" if relayed else "due", "b", due_ms=NOW_MS + 60_000, extras=extras)
    store.raw.delete(*(key(store, one) for one in ("parked", "due", "relay")))
    store.set_ms(NOW_MS + 60_000)
    paused = repair(store)
    assert set(paused) == {("record_without_place", one) for one in "ab"}
    assert set(paused.values()) == {"back"}  # it is parked again, and excused

    store.raw.delete(*(key(store, one) for one in ("due", "relay")))
    store.entries.resume(lane_for(), 0)
    became = repair(store)
    assert [became["record_without_place", one] for one in "ab"] == ["late", "back"]
    shard_steps = store.steps()
    seen = shard_steps.claim(2) if relayed else shard_steps.hand_over()
    assert [task_id for task_id, _ in seen.skipped] == ["a"]


def test_an_entry_that_lost_its_place_can_be_cancelled_before_a_repair_and_after(store):
    store.schedule("a", FAR_MS, extras=EXTRAS)
    store.raw.delete(key(store, "due"))
    found = list(check_store(store.entries))
    assert store.entries.change("a", Removal())[0] is Outcome.DONE
    assert mended(store, found) == ["gone"]
    assert drain(store) == []
    store.set_ms(NOW_MS)
    store.schedule("a", FAR_MS, extras=EXTRAS)
    store.raw.delete(key(store, "due"))
    repair(store)
    assert store.entries.change(target_of_key("k1"), Removal())[0] is Outcome.DONE
    assert drain(store) == []
    store.check()


def test_a_scanner_is_told_of_what_waits_again(store):
    store.schedule("a", NOW_MS)
    store.raw.delete(key(store, "due"))
    store.steps().hand_over(asleep=5.0)
    with store.raw.pubsub() as ears:
        ears.psubscribe("*wake*")
        assert ears.get_message(timeout=30)["type"] == "psubscribe"
        assert repair(store) == {("record_without_place", "a"): "back"}
        assert ears.get_message(timeout=30)["type"] == "pmessage"


def tried(store):
    """Its claim shows that no attempt is uncertain."""
    store.at("refused")
    store.raw.hdel(key(store, "errors"), "a")


def scheduled_anew(store):
    store.schedule("a")
    store.steps().hand_over()
    store.raw.delete("celery")
    store.set_ms(NOW_MS + 1)
    store.schedule("a", FAR_MS)


# An entry, the index that is lost, the repair, and whether it then leaves as possibly delivered.
LOST = {
    "overdue, for a list": (lambda store: store.at("due"), "due", "back", False),
    "overdue, for a relay": (lambda store: store.at("relay"), "relay", "back", True),
    "tried, but it did not leave": (tried, "refused", "back", False),
    "its scanner is dead": (lambda store: store.at("leased"), "leased", "done", True),
    "scheduled anew since it left": (scheduled_anew, "due", "back", False),
}


@pytest.mark.parametrize(("arrange", "index", "what", "is_marked"), LOST.values(), ids=LOST)
def test_an_entry_that_lost_its_place_leaves_once_marked_only_if_it_may_have_left(
    store, arrange, index, what, is_marked
):
    arrange(store)
    store.raw.delete(key(store, index))
    assert repair(store) == {("record_without_place", "a"): what}
    assert drain(store) == [("a", is_marked)]


def test_an_entry_that_repair_marks_after_a_tidy_note_is_cancelled_as_uncertain(store):
    """Repair removes the scanner's note; by that note, no entry has had an attempt."""
    store.steps()
    store.schedule_relayed("relay", NOW_MS)
    store.steps().hand_over()
    assert store.raw.hget(store.keys["meta"], "tidy") == b"wu"
    store.raw.delete(store.keys["relay"])
    assert repair(store) == {("record_without_place", "relay"): "back"}
    assert store.entries.change("relay", Removal())[0] is Outcome.UNCERTAIN


def test_an_entry_being_published_goes_on_and_its_lease_is_as_it_was(store):
    claims = store.at("leased", lease=30)
    before = store.snapshot()
    store.raw.delete(key(store, "leased"))
    store.set_ms(NOW_MS + 1000)
    assert repair(store) == {("record_without_place", "a"): "done"}
    assert store.snapshot() == before
    assert store.entries.change("a", Removal())[0] is Outcome.IN_FLIGHT
    assert store.steps().ack(claims) == 1
    assert drain(store) == []
    store.check()


def test_a_claim_of_before_the_clock_was_set_back_holds_no_longer_than_a_lease(store):
    store.at("leased", lease=30)
    store.raw.delete(key(store, "leased"))
    store.set_ms(NOW_MS - 3_600_000)
    repair(store)
    assert store.score("leased", "a") == NOW_MS - 3_600_000 + 30_000


@pytest.mark.parametrize("index", ["dead", "refused"])
def test_an_entry_that_had_failed_is_dead_with_its_reason(store, index):
    store.at(index)
    before = store.snapshot()
    store.raw.delete(key(store, index))
    assert repair(store) == {("record_without_place", "a"): "dead"}
    assert index == "refused" or store.snapshot() == before
    found = store.entries.find("a")
    assert (found.state, found.facts.error) == (State.DEAD, "NO_ROUTE")
    assert drain(store) == []
    assert store.reschedule("a", When("at", 0), mode="retry")[0] is Outcome.DONE
    assert drain(store) == [("a", False)]


def test_an_entry_that_may_have_left_is_dead_and_says_so(store):
    store.schedule("a", NOW_MS)
    record = store.record("a")
    store.steps().hand_over()
    store.raw.hset(key(store, "records"), "a", record)
    (became,) = repaired(store, list(check_store(store.entries)))
    says = "it had lost its place, and may have left"
    assert (became.what, became.reason) == ("dead", says)
    assert store.entries.find("a").facts.error == says
    assert drain(store) == [("a", False)]  # the entry that had left


def test_the_history_tells_of_what_waits_again(store):
    entries = store.entries = Entries([store.scripts_with(history=20)], store.membership)
    entries.join()
    store.schedule("a", FAR_MS, extras=EXTRAS)
    store.at("dead", "b")
    store.raw.delete(key(store, "due"), key(store, "dead"))
    repair(store)
    told = [(one.what.value, one.task_id, one.key) for one in entries.history(2)]
    assert sorted(told) == [("dead", "b", ""), ("repaired", "a", "k1")]


@pytest.mark.parametrize("index", ["due", "relay", "parked"])
def test_a_place_without_a_record_is_a_task_that_is_lost_unless_it_has_left(store, index):
    before = b"*" * 7 + b"\0" * 7 + b"L" if index == "parked" else b""
    store.raw.zadd(key(store, index), {before + b"......left": 1, before + b"......gone": 1})
    store.raw.hset(key(store, "tombstones"), "left", f"h{NOW_MS}")
    assert repair(store) == {
        ("place_without_record", "left"): "done",
        ("place_without_record", "gone"): "lost",
    }
    assert not store.raw.exists(key(store, index))


# Entries with two places.


@pytest.mark.parametrize(("put_it", "own"), [("schedule", "due"), ("schedule_relayed", "relay")])
@pytest.mark.parametrize("other", ["due", "relay", "refused", "leased", "dead"])
def test_of_two_places_that_stays_where_it_waits(store, put_it, own, other):
    getattr(store, put_it)("a", FAR_MS)
    before = store.contents()
    if other != own:
        store.raw.zadd(key(store, other), {store.raw.zrange(key(store, own), 0, 0)[0]: NOW_MS + 1})
        assert kinds(store) & {"second_place"}
    repair(store)
    assert store.contents() == before
    assert drain(store) == [("a", False)]


def test_of_several_places_the_lease_of_an_entry_being_published_stays(store):
    claims = store.at("leased")
    before = store.contents()
    for other in ("relay", "due", "refused", "dead"):
        store.raw.zadd(key(store, other), {claims[0].member: NOW_MS})
    repair(store)
    assert store.contents() == before
    assert store.steps().ack(claims) == 1
    assert drain(store) == []
    store.check()


def test_a_lease_that_was_ended_gives_way(store):
    """Redis stopped the script that gave it back before the removal from `leased`."""
    claims = store.at("leased")
    lease = store.raw.zrange(key(store, "leased"), 0, -1, withscores=True)
    store.steps().nack("unsent", claims)
    before = store.contents()
    store.raw.zadd(key(store, "leased"), dict(lease))
    assert set(repair(store)) == {("second_place", "a")}
    assert store.contents() == before


def test_an_entry_parked_twice_is_parked_once_after_repair(store):
    store.entries.pause(lane_for(), "")
    store.entries.pause(lane_for(queue="celery"), "celery")
    store.schedule("a", NOW_MS)
    store.steps().hand_over()
    before = store.contents()
    (member,) = store.raw.zrange(key(store, "parked"), 0, -1)
    other = lane_for(queue="celery") + member[7:]
    store.raw.zadd(key(store, "parked"), {other: 0})
    assert set(repair(store)) == {("second_place", "a")}
    assert store.contents() == before


def test_a_number_that_is_not_the_record_s_goes_and_the_entry_has_a_place(store):
    store.schedule("a", FAR_MS)
    before = store.contents()
    store.raw.delete(key(store, "due"))
    store.raw.zadd(key(store, "due"), {b"\xff" * 6 + b"a": NOW_MS})
    became = repair(store, of={"second_place"})
    assert became == {("second_place", "a"): "back"}
    assert store.contents() == before


# Entries that are parked for ever.


@pytest.mark.parametrize("relayed", [False, True])
def test_an_entry_parked_for_ever_comes_back_with_its_due_time_and_is_excused(store, relayed):
    store.at("parked", relayed=relayed, extras=Extras(grace_ms=1000))
    store.raw.delete(key(store, "paused"))
    store.set_ms(NOW_MS + 60_000)
    assert repair(store) == {("record_without_place", "a"): "done"}
    assert store.score("relay" if relayed else "due", "a") == NOW_MS
    shard_steps = store.steps()
    assert shard_steps.hand_over().handed_over + len(shard_steps.claim(1)[0]) == 1


def test_an_entry_that_is_paused_or_comes_back_is_not_parked_for_ever(store):
    store.entries.pause(lane_for(), "")
    store.schedule("a", NOW_MS)
    store.steps().hand_over()
    assert kinds(store) == set()
    store.entries.resume(lane_for(), 1)
    assert kinds(store) == set()
    store.raw.hdel(key(store, "paused"), "<")  # no scanner will let it come back
    assert kinds(store) == {"record_without_place"}
    repair(store)
    assert drain(store) == [("a", False)]


# Keys and tags.


@pytest.mark.parametrize("holder", [None, "b"], ids=["nobody's", "another's"])
def test_a_key_and_tags_that_were_lost_go_back_to_the_entry_that_waits(store, holder):
    store.schedule("a", FAR_MS, extras=EXTRAS)
    store.schedule("b", FAR_MS, extras=Extras("other"))
    before = store.contents()
    store.raw.hdel(key(store, "holders"), "k1")
    store.raw.delete(key(store, "tags"))
    if holder:
        store.raw.hset(key(store, "holders"), "k1", holder)
    became = repair(store)
    assert became["wrong_tag", "a"] == "done"
    assert holder or became["wrong_key", "a"] == "done"
    assert store.contents() == before


def test_of_two_that_wait_under_a_key_one_holds_it(store):
    store.schedule("a", FAR_MS, extras=EXTRAS)
    store.raw.delete(key(store, "holders"))
    store.schedule("b", FAR_MS, extras=EXTRAS)
    assert repair(store) == {}
    store.raw.delete(key(store, "holders"))
    assert sorted(repair(store).values()) == ["done", "gone"]
    assert kinds(store) == set()


# Owed REVOKED states.


def owed(store):
    return [one.task_id for one in store.steps().owed()]


def test_an_owed_state_whose_note_was_lost_is_owed_again(store):
    store.schedule("a", FAR_MS)
    store.entries.change("a", Removal("caller"))
    store.raw.delete(key(store, "outbox"))
    assert owed(store) == []
    assert repair(store) == {("owed_revoked", "a"): "done"}
    assert owed(store) == ["a"]


@pytest.mark.parametrize("why", ["its id is a new task's", "it cannot be read"])
def test_an_owed_state_whose_note_was_lost_is_removed_where(store, why):
    store.schedule("a", FAR_MS)
    store.entries.change("a", Removal("caller"))
    store.raw.delete(key(store, "outbox"))
    if why == "it cannot be read":
        store.raw.hset(key(store, "outbox_messages"), "a", "?")
    else:
        store.schedule("a", FAR_MS)
    repair(store)
    assert owed(store) == []
    assert not store.raw.exists(key(store, "outbox_messages"))


# Counts of templates.


def uses(store):
    return {name: int(one) for name, one in store.raw.hgetall(key(store, "template_uses")).items()}


# Texts that Python or Lua reads as a number, but HINCRBY does not read, or cannot raise.
NO_COUNTS = [
    *("01", "03", "09", "-0", "-03", "+3", " 3", "3 ", "3_0", "3.0", "1e1", "0x3", ""),
    *(str(2**63 - 1), str(-(2**63)), "9" * 30),
]


@pytest.mark.parametrize("spoilt", ["0", "-5", "2", "9", "?", None, *NO_COUNTS])
def test_a_count_is_what_it_should_be(store, spoilt):
    ids = store.flood(3, FAR_MS)
    before = uses(store)
    (name,) = before
    if spoilt is None:
        store.raw.delete(key(store, "template_uses"))
    else:
        store.raw.hset(key(store, "template_uses"), name, spoilt)
    repair(store)
    assert store.raw.hget(key(store, "template_uses"), name) == b"3"
    assert uses(store) == before
    store.schedule("another", share=True)
    store.entries.change("another", Removal())
    for task_id in ids:
        assert store.entries.find(task_id)
        store.entries.change(task_id, Removal())
    assert not store.raw.exists(key(store, "template_uses"), key(store, "templates"))


def test_a_count_is_lowered_where_the_last_number_was_lost(store):
    store.flood(3, FAR_MS)
    before = uses(store)
    store.raw.hdel(key(store, "meta"), "seq")
    store.raw.hset(key(store, "template_uses"), next(iter(before)), 9)
    repair(store)
    assert uses(store) == before


def test_entries_that_come_or_leave_between_look_and_recount_count(store):
    store.flood(9, FAR_MS)
    (name,) = uses(store)
    store.raw.hset(key(store, "template_uses"), name, 5)
    found = list(check_store(store.entries))

    def change():
        store.set_ms(NOW_MS + 1)
        for task_id in ("b", "c", "d"):
            store.schedule(task_id, FAR_MS, share=True)
        store.entries.change("a1", Removal())

    # Behind the last look at a record, before the last at the counts.
    amid(store, "template_uses", change, at=2)
    assert mended(store, found) == ["done"]
    assert uses(store) == {name: 11}
    store.check()


def test_an_entry_that_leaves_unseen_makes_a_count_too_low_and_never_too_high(store):
    store.flood(9, FAR_MS)
    (name,) = uses(store)
    store.raw.hset(key(store, "template_uses"), name, 5)
    found = list(check_store(store.entries))
    amid(store, "records", lambda: store.entries.change("a1", Removal()))
    assert mended(store, found) == ["done"]
    assert uses(store) == {name: 7}
    repair(store)
    assert uses(store) == {name: 8}
    store.check()


def test_no_count_is_lowered_while_something_comes_or_is_edited(store):
    store.schedule("a", FAR_MS, share=True)
    store.schedule("other", FAR_MS)
    (name,) = uses(store)
    store.raw.hset(key(store, "template_uses"), name, 2)
    found = list(check_store(store.entries))
    assert {one.kind for one in found} == {"wrong_count"}

    def edit_and_cancel():
        """Change entries; the count, and the number of the last scheduled entry, stay the same."""
        store.edit("other")
        store.entries.change("a", Removal())

    # Behind the last look at a record, before the last at the counts.
    amid(store, "template_uses", edit_and_cancel, at=2)
    assert mended(store, found) == ["gone"]
    assert uses(store) == {name: 2}
    assert set(repair(store).values()) == {"done"}
    assert uses(store) == {name: 1}


def test_no_count_is_lowered_beside_a_record_of_a_later_version_which_may_share_the_template(store):
    store.schedule("a", FAR_MS, share=True)
    store.schedule("b", FAR_MS)
    before = store.contents()
    store.raw.hset(key(store, "template_uses"), template_of(store.record("a")), 2)
    store.raw.hset(key(store, "templates"), "x", "text")
    later = b"0" + store.record("b")[1:]
    store.raw.hset(key(store, "records"), "b", later)
    assert repair(store) == {("unreadable_record", "b"): "left"}
    store.raw.hset(key(store, "records"), "b", b"1" + later[1:])
    repair(store)
    assert store.contents() == before


def test_the_key_and_the_tags_of_a_record_of_a_later_version_stay(store):
    store.schedule("a", FAR_MS, extras=EXTRAS)
    store.raw.hset(key(store, "records"), "a", b"0" + store.record("a")[1:])
    before = store.contents()
    assert repair(store) == {("unreadable_record", "a"): "left"}
    assert store.contents() == before


def test_a_template_that_is_shared_by_then_stays(store):
    store.schedule("a", FAR_MS, share=True)
    (name,) = uses(store)
    text = store.raw.hget(key(store, "templates"), name)
    store.entries.change("a", Removal())
    store.raw.hset(key(store, "templates"), name, text)
    found = list(check_store(store.entries))
    assert [one.kind for one in found] == ["wrong_count"]
    amid(store, "template_uses", lambda: store.schedule("b", FAR_MS, share=True), at=2)
    assert mended(store, found) == ["gone"]
    store.check()


def test_two_repairs_at_once_raise_a_count_once(store):
    store.flood(3, FAR_MS)
    before = uses(store)
    (name,) = before
    store.raw.hset(key(store, "template_uses"), name, 1)
    found = list(check_store(store.entries))
    other = Entries([store.new_scripts()], store.membership)
    inner = []
    amid(
        store,
        "template_uses",
        lambda: inner.extend(mended(store, found, other)),
        at=2,
    )
    outer = mended(store, found)
    other.shards[0].scripts.connection.close()
    assert (inner, outer) == (["done"], ["gone"])
    assert uses(store) == before


def amid(store, part, step, *, at=1):
    """Run a step right before a slice of this part is read; *at* is its number, from 1."""
    seen = []

    def called(name, given):
        if name == "check" and given["part"] == part:
            seen.append(part)
            if len(seen) == at:
                step()

    store.scripts.on_call = called
