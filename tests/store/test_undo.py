"""The undo of a cancel: an entry comes back as it was, from a line of its own."""

import dataclasses
from types import SimpleNamespace

import pytest

from celery_delayq.contrib.care import dump
from celery_delayq.core.hooks import part_of
from celery_delayq.core.store import Outcome
from celery_delayq.core.store.changes import Removal
from celery_delayq.core.store.record import Extras, lane_for
from tests.store import requests
from tests.store.arguments import arguments
from tests.store.held_and_behind import behind_one_that_waits, second
from tests.store.support import FAR_MS, HALF_PAST_US, NOW_MS

MINUTE_MS, MOST = 60_000, 5
KEPT = MINUTE_MS / 1000, MOST
EXTRAS = Extras("its key", ("one", "two"), 5000, hold="f1000")


def kept(store):
    """The store's data of each entry, without its place in the order, last change and excuse."""
    found = {}
    for each in dump.kept_in(store.entries):
        facts = vars(each.facts) | {"message": each.message}
        record = each.record
        extras = dataclasses.asdict(record.extras) | {"excused_ms": 0}
        found[each.task_id] = (
            facts,
            extras,
            record.due_ms,
            record.created_us,
            record.labels,
            record.flags,
            record.destination,
        )
    return found


def cancel(store, task_id, undo=KEPT, **options):
    outcome, _ = store.entries.change(task_id, Removal(undo=undo, **options))
    return outcome


def undo(store, *ids, hurries=0, tells=1):
    text, rows = store.shard.calls.call("undo", hurries=hurries, tells=tells, ids=ids)
    return text.decode(), [(row.place, row.message) for row in rows]


def undone(store, *ids, **options):
    return undo(store, *ids, **options)[0]


def lines(store):
    return {*store.raw.hkeys(store.keys["undo"]), *store.raw.hkeys(store.keys["undo_old"])}


STATES = {
    "with a template": lambda store: store.schedule("a", FAR_MS, share=True),
    "with a message of its own": lambda store: store.schedule("a", FAR_MS, payload="x" * 9000),
    "for a relay": lambda store: store.schedule_relayed("a", FAR_MS, share=True),
    "with a key and tags": lambda store: store.schedule("a", FAR_MS, share=True, extras=EXTRAS),
    "with tags alone": lambda store: store.schedule("a", FAR_MS, extras=Extras("", ("one",))),
    "with a grace period": lambda store: store.schedule("a", FAR_MS, extras=Extras(grace_ms=9)),
    "overdue": lambda store: store.schedule("a", NOW_MS - 9, share=True, extras=EXTRAS),
    "refused": lambda store: store.at("refused", wait=0, extras=EXTRAS),
    "parked": lambda store: store.at("parked", extras=EXTRAS),
    "dead": lambda store: store.at("dead", extras=EXTRAS),
    "dead and removed": lambda store: store.at("dead", extras=EXTRAS),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("remains", [False, True], ids=["alone", "beside others of its template"])
def test_a_cancelled_entry_comes_back_as_it_was(store, state, remains):
    if remains:
        store.schedule("other", FAR_MS, share=True)
    STATES[state](store)
    before = kept(store)
    store.set_ms(NOW_MS + 10)
    assert cancel(store, "a", only_dead="removed" in state) is Outcome.DONE
    assert "a" not in kept(store)

    store.set_ms(NOW_MS + 20)
    told = undone(store, "a")

    after = kept(store)
    for facts, *_ in (*before.values(), *after.values()):
        if facts["word"] == "paused":
            facts["word"] = "waiting"  # the next scanner parks it
    assert told == f"done:{before['a'][2]}"
    assert after == before
    has_failed = state in ("refused", "dead", "dead and removed")
    assert has_failed == (after["a"][0]["error"] == "NO_ROUTE")
    assert not lines(store)
    store.check()


def test_an_entry_behind_another_stands_there_again(store):
    second(SimpleNamespace(store=store, steps=store.steps()))
    before = kept(store)
    assert before["second"][0]["word"] == "behind"
    cancel(store, "second")

    assert undone(store, "second").startswith("done:")

    assert kept(store) == before
    store.check()


def test_an_entry_that_may_have_been_delivered_comes_back_marked(store):
    store.at("lapsed")
    assert cancel(store, "a") is Outcome.UNCERTAIN

    assert undone(store, "a").startswith("done:")

    facts, *_ = kept(store)["a"]
    assert (facts["word"], facts["attempts"], facts["is_uncertain"]) == ("waiting", 1, True)
    store.check()


def test_an_undo_tells_the_message_if_somebody_needs_it(store):
    store.schedule("a", FAR_MS, share=True)
    message = store.entries.find("a").message
    for tells, told in ((1, [(2, message)]), (0, [])):
        cancel(store, "a")
        assert undo(store, "nobody", "a", tells=tells) == (f"unknown done:{FAR_MS}", told)


def test_an_undo_takes_back_the_owed_revoked_and_the_tombstones_of_its_entry_and_no_others(store):
    store.schedule("a", FAR_MS, share=True, extras=EXTRAS)
    store.schedule("b", FAR_MS)
    cancel(store, "a", revoker="caller")
    cancel(store, "b")
    assert store.raw.exists(store.keys["outbox"])

    undone(store, "a")

    assert not store.raw.exists(store.keys["outbox"], store.keys["outbox_messages"])
    assert store.raw.hkeys(store.keys["tombstones"]) == [b"b"]


def test_the_tombstone_of_a_later_holder_of_its_key_stays(store):
    for step, task_id in enumerate("ab"):
        store.set_ms(NOW_MS + step)
        store.schedule(task_id, FAR_MS, extras=EXTRAS)
        cancel(store, task_id)
    before = store.raw.hget(store.keys["tombstones"], b"\xff" + EXTRAS.key.encode())
    assert before

    undone(store, "a")

    assert store.raw.hget(store.keys["tombstones"], b"\xff" + EXTRAS.key.encode()) == before


def used_again(store, due_ms=FAR_MS, later_ms=0):
    store.set_ms(NOW_MS + 1)
    cancel(store, "a")
    store.set_ms(NOW_MS + 1 + later_ms)
    store.schedule("a", due_ms)


def waits_and_is_due(store):
    used_again(store)
    store.set_ms(FAR_MS + 1)


def used_again_and_left(store):
    used_again(store, NOW_MS, later_ms=1)
    store.steps().hand_over()


def cancelled_again_without_a_line(store):
    used_again(store, later_ms=1)
    cancel(store, "a", undo=0)


def key_taken(store):
    cancel(store, "a")
    store.schedule("b", FAR_MS, extras=EXTRAS)


def sent_to_workers(store):
    cancel(store, "a")
    store.entries.forgo(["a", "nobody"])


def back_already(store):
    cancel(store, "a")
    undone(store, "a")


REFUSALS = {
    "its cancel keeps no line": (lambda store: cancel(store, "a", undo=0), "unknown"),
    "it is back already": (back_already, "unknown"),
    "another one has its key": (key_taken, "held:b"),
    "another one with its id waits": (used_again, "taken"),
    "that one is due": (waits_and_is_due, "taken"),
    "its id was used again and has left": (used_again_and_left, "left"),
    "a later cancel keeps no line": (cancelled_again_without_a_line, "left"),
    "its id was sent to the workers": (sent_to_workers, "revoked"),
}


@pytest.mark.parametrize(("happens", "told"), REFUSALS.values(), ids=REFUSALS)
def test_an_undo_that_cannot_be_says_why_and_changes_nothing(store, happens, told):
    store.schedule("a", FAR_MS, extras=EXTRAS)
    happens(store)
    before = store.snapshot()

    assert undone(store, "a") == told

    assert store.snapshot() == before


def test_of_several_each_has_its_own_answer(store):
    for task_id in "ab":
        store.schedule(task_id, FAR_MS)
        cancel(store, task_id)
    store.entries.forgo(["a"])

    assert undone(store, "a", "b", hurries=1) == f"revoked done:{FAR_MS}"
    assert lines(store) == {b"a"}


def test_an_undo_is_refused_if_the_entry_behind_has_the_key_by_now(store):
    behind_one_that_waits(SimpleNamespace(store=store, steps=store.steps()))
    cancel(store, "held")
    assert undone(store, "held") == "held:second"


@pytest.mark.parametrize("share", [False, True])
def test_an_entry_that_fell_due_since_the_cancel_is_refused_or_due_now(store, share):
    store.schedule("a", NOW_MS + 1000, share=share)
    cancel(store, "a")
    store.set_ms(NOW_MS + 1000)

    assert undone(store, "a") == f"overdue:{NOW_MS + 1000}"
    store.set_ms(NOW_MS + 3000)
    assert undone(store, "a", hurries=1) == f"done:{NOW_MS + 3000}"

    store.steps().hand_over()
    assert store.arrived() == ["a"]


def test_scanners_wake_for_what_came_back(store):
    store.schedule("a", NOW_MS + 500)
    cancel(store, "a")
    store.raw.hset(store.keys["meta"], "timer", f"{FAR_MS}:")  # all sleep

    undone(store, "a")

    assert store.raw.hget(store.keys["meta"], "timer").startswith(b"%d" % (NOW_MS + 500))


def at(store, issued):
    """The words of a request that was made then."""
    words = {"operation": b"one", "issued": issued, "deadline": issued + 9_000_000}
    return {**words, "began": issued, "store": store.raw.hget(store.keys["meta"], "store")}


def test_a_request_from_before_a_newer_change_is_stale(store):
    store.schedule("a", FAR_MS, extras=EXTRAS)
    cancel(store, "a")

    made = at(store, NOW_MS * 1000 - 1)
    answer = store.scripts.call("undo", **made, **arguments("undo", ids=["a"]))

    assert answer[1] == b"stale"
    assert store.places("a") == []


def test_a_cancel_of_before_does_not_remove_what_came_back(store):
    store.set_us(HALF_PAST_US)
    store.schedule("a", FAR_MS)
    late = requests.cancel(store, "a")
    store.set_us(HALF_PAST_US + 20)
    cancel(store, "a")
    store.set_us(HALF_PAST_US + 30)
    undone(store, "a")

    assert late.send() == [b"stale"]

    assert store.places("a") == ["due"]


# Generations.


def test_as_many_of_the_latest_lines_are_kept_as_the_setting_says_at_least(store):
    ids = [f"a{number}" for number in range(3 * MOST)]
    for task_id in ids:
        store.schedule(task_id, FAR_MS)
        cancel(store, task_id)
    found = {name.decode() for name in lines(store)}
    assert found >= {*ids[-MOST:]}
    assert len(found) <= 2 * MOST


@pytest.mark.parametrize(
    ("minutes", "kept"),
    [((0, 1, 2), {b"b", b"c"}), ((0, 1, -1), {b"a", b"b", b"c"})],
    ids=["of an age", "after the clock was set back"],
)
def test_lines_go_at_an_age_and_not_early(store, minutes, kept):
    for task_id, minute in zip("abc", minutes, strict=True):
        store.set_ms(NOW_MS + minute * MINUTE_MS)
        store.schedule(task_id, FAR_MS)
        cancel(store, task_id)
    assert lines(store) == kept


LARGE, SMALL = (600, 20), KEPT


def test_a_process_with_a_smaller_setting_throws_away_no_line_of_another_one(store):
    ids = [f"a{number}" for number in range(20)]
    for task_id in ids:
        store.schedule(task_id, FAR_MS)
        cancel(store, task_id, undo=LARGE)
    others = [f"b{number}" for number in range(3 * MOST)]
    for number, task_id in enumerate(others):
        store.set_ms(NOW_MS + number * MINUTE_MS // 2)
        store.schedule(task_id, FAR_MS)
        cancel(store, task_id, undo=SMALL)

    assert lines(store) == {task_id.encode() for task_id in (*ids, *others)}
    # Each key lasts as long as the larger setting says, from its last line on.
    assert store.raw.pttl(store.keys["undo"]) > MINUTE_MS
    assert undone(store, ids[0]) == f"done:{FAR_MS}"


def test_a_larger_setting_holds_no_longer_than_what_was_kept_under_it(store):
    store.schedule("a", FAR_MS)
    cancel(store, "a", undo=LARGE)
    for number in range(60):
        store.set_ms(NOW_MS + 11 * MINUTE_MS + number)
        store.schedule(f"b{number}", FAR_MS)
        cancel(store, f"b{number}", undo=SMALL)

    assert len(lines(store)) <= 2 * MOST


def cancel_bulk(store, *ids, undo=KEPT):
    with part_of("bulk"):
        for task_id in ids:
            store.schedule(task_id, FAR_MS)
            cancel(store, task_id, undo=undo)


def test_of_a_bulk_it_is_known_how_many_are_kept_and_how_many_are_not_back(store):
    ids = [f"a{number}" for number in range(3 * MOST)]
    assert store.entries.undoable("bulk") == (0, None)
    cancel_bulk(store, *ids)

    assert store.entries.undoable("bulk") == (2 * MOST, 3 * MOST)
    undone(store, *ids[-2:])
    assert store.entries.undoable("bulk") == (2 * MOST - 2, 3 * MOST - 2)


def test_a_task_of_a_bulk_whose_id_was_cancelled_again_is_not_that_bulk_s(store):
    cancel_bulk(store, "a", "b")
    store.set_ms(NOW_MS + MINUTE_MS)  # the next line begins a generation
    store.schedule("a", FAR_MS)
    cancel(store, "a")

    assert store.entries.undoable("bulk") == (1, 2)


def test_the_numbers_of_bulks_are_bounded_and_outlive_their_lines(store):
    for number in range(8 * MOST):
        store.schedule("a", FAR_MS)
        with part_of(f"bulk{number}"):
            cancel(store, "a")
    names = [store.raw.hlen(store.keys[name]) for name in ("undo_bulks", "undo_bulks_old")]
    assert max(names) <= 2 * MOST
    assert store.entries.undoable(f"bulk{8 * MOST - 2 * MOST}") == (0, 1)
    assert store.raw.pttl(store.keys["undo_bulks"]) > MINUTE_MS


def test_a_bulk_that_goes_on_after_many_others_has_one_number(store):
    cancel_bulk(store, "first")
    for number in range(2 * MOST):
        store.schedule("a", FAR_MS)
        with part_of(f"bulk{number}"):
            cancel(store, "a")
    cancel_bulk(store, "second")
    assert store.entries.undoable("bulk")[1] == 2


@pytest.mark.parametrize("share", [True, False])
def test_a_task_of_which_a_line_is_kept_can_be_read_by_its_id(store, share):
    store.schedule("a", FAR_MS, extras=Extras("key", ("tag",)), share=share)
    before = store.entries.find("a")
    cancel(store, "a")

    kept = store.entries.kept("a")
    assert (kept.when_ms, kept.bulk) == (NOW_MS, "")
    assert kept.entry == before
    assert kept.entry.message == before.message
    undone(store, "a")
    assert store.entries.kept("a") is None


def test_of_a_dead_task_of_a_bulk_the_error_and_the_bulk_can_be_read_too(store):
    store.at("dead", extras=EXTRAS)
    before = store.entries.find("a").facts
    with part_of("bulk"):
        cancel(store, "a")

    kept = store.entries.kept("a")
    facts = kept.entry.facts
    assert kept.bulk == "bulk"
    assert (facts.state, facts.error) == (before.state, before.error)
    assert facts.error


def test_redis_forgets_them_if_nothing_more_is_cancelled(store):
    store.schedule("a", FAR_MS)
    cancel(store, "a")
    assert MINUTE_MS - 30_000 < store.raw.pttl(store.keys["undo"]) <= MINUTE_MS


def test_an_entry_of_the_generation_before_comes_back(store):
    store.schedule("a", FAR_MS)
    store.schedule("b", FAR_MS)
    cancel(store, "a")
    store.set_ms(NOW_MS + MINUTE_MS)
    cancel(store, "b")
    assert store.raw.hkeys(store.keys["undo_old"]) == [b"a"]

    assert undone(store, "a") == f"done:{FAR_MS}"

    assert lines(store) == {b"b"}


def test_a_line_that_would_be_too_long_is_not_kept(store):
    store.schedule("a", FAR_MS, payload="x" * 101_000)
    assert cancel(store, "a") is Outcome.DONE
    assert not lines(store)


def test_a_full_redis_drops_the_line_and_cancels_and_it_is_known_of_the_bulk(start_redis, store_on):
    store = store_on(start_redis("--maxmemory-policy", "noeviction"))
    store.schedule("a", FAR_MS, share=True)
    store.raw.config_set("maxmemory", 1)
    with part_of("bulk"):
        assert cancel(store, "a") is Outcome.DONE
    store.raw.config_set("maxmemory", 0)

    assert not lines(store)
    assert store.places("a") == []
    assert store.entries.undoable("bulk") == (0, 1)


@pytest.mark.parametrize("name", ["undo", "undo_old", "undo_bulks", "undo_bulks_old"])
def test_a_key_of_another_program_keeps_no_task_from_being_cancelled(store, name):
    store.schedule("a", FAR_MS)
    store.raw.rpush(store.keys[name], "theirs")
    with part_of("bulk"):
        assert cancel(store, "a") is Outcome.DONE
    assert store.places("a") == []


@pytest.mark.parametrize("text", [b"", b"x", b"1 - waiting 0 0 - 0 5 abc", b"\xff" * 99])
def test_a_text_of_another_program_is_no_line(store, text):
    store.entries.join()
    store.raw.hset(store.keys["undo"], "a", text)
    assert undone(store, "a") == "unknown"


def test_the_lines_of_a_bulk_are_found_among_others(store):
    ids = [f"a{number}" for number in range(300)]
    for task_id in ids:
        store.schedule(task_id, FAR_MS)
        with part_of(f"bulk{int(task_id[1:]) % 2}"):
            cancel(store, task_id, undo=(60, 1000))
    found, cursor = [], 0
    while True:
        cursor, left, number, rows = store.scripts.call(
            "undoable", **arguments("undoable", part="undo", cursor=cursor, count=50, bulk="bulk1")
        )
        assert (left, number) == (150, len(rows))
        found += [(row.id, row.bulk, row.when) for row in rows]
        if int(cursor) == 0:
            break
    when = b"%d" % (NOW_MS * 1000)
    assert {*found} == {(task_id.encode(), b"bulk1", when) for task_id in ids[1::2]}


@pytest.mark.parametrize("hurries", [0, 1])
@pytest.mark.parametrize("place", ["due", "parked"])
def test_an_entry_cancelled_while_overdue_is_not_too_late_after_the_undo(store, place, hurries):
    due_ms, later_ms = NOW_MS - 10, NOW_MS + 60_000
    store.at(place, due_ms=due_ms, extras=Extras(grace_ms=1000))
    cancel(store, "a")
    store.set_ms(later_ms)
    store.entries.resume(lane_for(queue="celery"))
    store.set_ms(2 * later_ms - NOW_MS)

    back_ms = 2 * later_ms - NOW_MS if hurries else due_ms
    assert undone(store, "a", hurries=hurries) == f"done:{back_ms}"

    store.steps().hand_over()
    assert store.arrived() == ["a"]
