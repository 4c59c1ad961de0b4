"""Scheduling, one entry or many: the writes, the answers, refusals, and templates."""

import json
from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from celery_delayq.core import clock
from celery_delayq.core.clock import EPOCH, MAX_DUE_MS, When, after, due_in_ms
from celery_delayq.core.store import Entries, Listing, NewEntry, Outcome, Receipt, State, entries
from celery_delayq.core.store.changes import Removal
from celery_delayq.core.store.entries import OldEntry
from celery_delayq.core.store.record import Template, header_for
from celery_delayq.core.store.schedule import Addition
from celery_delayq.errors import (
    AlreadyScheduled,
    InvalidDueTime,
    StoreUnavailable,
    UnreadableRecord,
)
from tests.store import support
from tests.store.arguments import arguments
from tests.store.support import (
    DUE_AT_ONCE,
    FAR_MS,
    HALF_PAST_US,
    LABELS,
    LINES,
    MEMBERSHIP,
    NOW_MS,
    ROUTE,
    STILL_TO_COME,
    WAITING,
    new_record,
)

pytestmark = pytest.mark.core


both_kinds = pytest.mark.parametrize("put", ["schedule", "schedule_relayed"])


@pytest.mark.parametrize("share", [False, True], ids=["whole", "template"])
@both_kinds
def test_an_entry_can_be_read_by_its_id_at_once(store, put, share):
    getattr(store, put)("a", FAR_MS, payload="x", share=share)
    entry = store.entries.find("a")
    assert (entry.task_id, entry.state) == ("a", State.SCHEDULED)
    assert (entry.due_ms, entry.created_ms) == (FAR_MS, NOW_MS)
    assert b'"body": "x"' in entry.message
    store.check()


@both_kinds
@pytest.mark.parametrize(("when", "due_ms"), DUE_AT_ONCE, ids=str)
def test_an_entry_due_at_once_leaves_in_the_millisecond_that_has_begun(store, put, when, due_ms):
    store.set_us(HALF_PAST_US)

    assert getattr(store, put)("a", when=when) == due_ms

    shard_steps = store.steps()
    assert shard_steps.hand_over().handed_over + len(shard_steps.claim(10)[0]) == 1


@pytest.mark.parametrize(("when", "due_ms"), STILL_TO_COME, ids=str)
def test_an_entry_still_to_come_is_due_in_the_millisecond_after(store, when, due_ms):
    store.set_us(HALF_PAST_US)

    assert store.schedule("a", when=when) == due_ms

    store.set_us(due_ms * 1000 - 1)
    assert store.steps().hand_over().handed_over == 0


@pytest.mark.parametrize(("when", "due_ms"), DUE_AT_ONCE + STILL_TO_COME, ids=str)
def test_a_dry_run_rounds_a_due_time_as_the_scripts_do(when, due_ms):
    us = when.us + (HALF_PAST_US if when.mode == "after" else 0)

    assert due_in_ms(us, HALF_PAST_US) == due_ms


def test_the_last_millisecond_there_is_can_be_scheduled_and_read_to_the_digit(store):
    store.schedule("a", MAX_DUE_MS)
    assert store.entries.find("a").due_ms == store.score("due", "a") == MAX_DUE_MS


def test_a_delay_that_ends_past_the_last_is_refused_and_nothing_is_written(store):
    too_long = timedelta(milliseconds=MAX_DUE_MS - NOW_MS + 1)
    before = store.snapshot()
    with pytest.raises(InvalidDueTime) as caught:
        store.schedule("a", when=after(too_long))
    assert str(caught.value) == (
        "57953 days 16 hours 40 minutes 54.741 seconds is not a due time; "
        "expected a time before 2255-06-05"
    )
    assert store.snapshot() == before
    assert store.schedule("a", when=after(too_long - timedelta(milliseconds=1))) == MAX_DUE_MS


# Superseding: a task that is running schedules itself again, under its own id.


# How far its entry came before, in one attempt or two.
MAY_HAVE_LEFT = {
    "in flight": ["leased"],
    "no answer": ["uncertain", "leased"],
    "then dead": ["uncertain", "dead"],
}


@both_kinds
@pytest.mark.parametrize("places", MAY_HAVE_LEFT.values(), ids=MAY_HAVE_LEFT)
def test_a_running_task_that_retries_replaces_an_entry_that_may_have_left(store, put, places):
    claims, shard_steps = store.at(places[0], payload="old"), store.steps()
    for place in places[1:]:
        claims = store.take(place, "a")

    getattr(store, put)("a", FAR_MS, payload="new", supersede=True, share=True)

    store.check()
    assert store.places("a") == ["due" if put == "schedule" else "relay"]
    assert b'"new"' in store.entries.find("a").message
    assert shard_steps.ack(claims) == shard_steps.nack("unknown", claims) == 0
    assert store.entries.find("a").due_ms == FAR_MS


@pytest.mark.parametrize("place", [*WAITING, "dead"])
def test_a_running_task_replaces_no_entry_that_has_not_left(store, place):
    store.at("leased", "other")  # so that another task has a claim
    store.at(place, payload="tomorrow")
    with pytest.raises(AlreadyScheduled):
        store.schedule("a", supersede=True)
    assert b'"tomorrow"' in store.entries.find("a").message
    store.check()


def test_an_entry_of_an_unknown_format_is_not_superseded(store):
    store.schedule("a", FAR_MS)
    newer = b"0" + store.record("a")[1:]
    store.raw.hset(store.keys["records"], "a", newer)
    with pytest.raises(AlreadyScheduled):
        store.schedule("a", supersede=True)
    assert store.record("a") == newer


def test_nothing_of_a_dead_ghost_clings_to_a_new_entry_of_its_id(store):
    store.schedule_relayed("a", NOW_MS)
    store.raw.hdel(store.keys["records"], "a")
    store.steps().claim(1)
    assert store.places("a") == ["dead"]
    store.schedule("a", FAR_MS)
    entry = store.entries.find("a")
    assert (entry.due_ms, entry.state, entry.facts.error) == (FAR_MS, State.SCHEDULED, "")
    assert store.reschedule("a", When("by", 1)) == (Outcome.DONE, FAR_MS + 1)


def test_a_call_whose_time_is_over_schedules_nothing(store):
    new = NewEntry("a", When("at", FAR_MS), new_record("a", header_for("L", "celery")))
    with pytest.raises(StoreUnavailable):
        store.entries.schedule([new], Addition(until=clock.monotonic()))
    assert store.entries.find("a") is None


# Scheduling many in one step: each entry is independent, and has its own answer.


LIST, RELAY = header_for("L", "celery"), header_for("R", ROUTE)


def new(task_id, due_ms=FAR_MS, *, to=LIST, share=True, when=None, payload=""):
    record = new_record(task_id, to, payload, share=share)
    return NewEntry(task_id, when or When("at", due_ms), record)


def schedule(store, *many, **options):
    """Each entry's due time in ms, or the reason of its refusal."""
    answers = store.entries.schedule(many, Addition(**options))
    for new_entry, answer in zip(many, answers, strict=True):
        assert not isinstance(answer, Receipt) or answer.task_id == new_entry.task_id
    return [answer.due_ms if isinstance(answer, Receipt) else answer for answer in answers]


def another_template(monkeypatch, number):
    """Let records share another template from here on."""
    lines = [*support.LINES]
    lines[3] = f', "headers": {{"n": {number}, "id": "'
    monkeypatch.setattr(support, "LINES", lines)


def kinds(answers):
    return [answer if isinstance(answer, int) else type(answer) for answer in answers]


def test_each_entry_is_scheduled_with_a_time_a_place_and_a_form_of_its_own(store):
    answers = schedule(
        store,
        new("a", FAR_MS),
        new("b", when=When("after", 5)),
        new("c", 0, to=RELAY),
        new("d", MAX_DUE_MS, to=RELAY, share=False),
        new("e", NOW_MS - 1, to=header_for("L", "mail"), share=False),
    )

    assert answers == [FAR_MS, NOW_MS + 5, 0, MAX_DUE_MS, NOW_MS - 1]
    assert [store.places(one) for one in "abcde"] == [["due"]] * 2 + [["relay"]] * 2 + [["due"]]
    store.check()


def test_equal_due_times_keep_their_order_whatever_their_form(store):
    ids = [f"a{number}" for number in range(300)]
    schedule(store, *(new(one, NOW_MS, share=place % 3 > 0) for place, one in enumerate(ids)))

    store.steps(batch_size=300).hand_over()

    assert store.arrived() == ids


@pytest.mark.parametrize("first", ["held", "late"])
def test_order_is_kept_where_a_template_was_forgotten_and_its_first_entry_is_refused(store, first):
    schedule(store, new("x", NOW_MS))
    store.steps().hand_over()
    store.schedule("held")

    schedule(
        store,
        new(first, 2**53),
        new("a", NOW_MS, share=False),
        new("b", NOW_MS),
        new("c", NOW_MS, share=False),
        new("d", NOW_MS),
    )

    store.steps().hand_over()
    assert [one for one in store.arrived() if one not in ("x", "held")] == ["a", "b", "c", "d"]
    store.check()


def test_a_refused_entry_spoils_none_of_the_others(store):
    store.schedule("held", FAR_MS, payload="first", share=True)
    store.at("leased", "in flight")
    before = store.record("held"), store.record("in flight")

    answers = schedule(
        store,
        new("held"),
        new("a"),
        new("late", when=When("after", MAX_DUE_MS)),
        new("in flight", to=RELAY),
        new("b"),
    )

    assert kinds(answers) == [AlreadyScheduled, FAR_MS, InvalidDueTime, AlreadyScheduled, FAR_MS]
    assert (answers[0].task_id, answers[2].value) == ("held", None)
    assert (store.record("held"), store.record("in flight")) == before
    assert store.places("late") == []
    store.check()


def test_where_all_are_refused_nothing_is_written(store):
    store.schedule("held", FAR_MS, share=True)
    before = store.snapshot()

    answers = schedule(store, new("held"), new("held", share=False), new("late", 2**53))

    assert kinds(answers) == [AlreadyScheduled, AlreadyScheduled, InvalidDueTime]
    assert store.snapshot() == before


@pytest.mark.parametrize("share", [True, False])
def test_an_id_that_comes_twice_is_scheduled_once_and_the_second_refused(store, share):
    answers = schedule(store, new("a", FAR_MS, payload="first"), new("a", 0, share=share))

    assert kinds(answers) == [FAR_MS, AlreadyScheduled]
    assert b'"first"' in store.entries.find("a").message
    store.check()


def test_an_id_whose_first_entry_is_too_late_is_scheduled_by_its_second(store):
    assert kinds(schedule(store, new("a", 2**53), new("a"))) == [InvalidDueTime, FAR_MS]
    store.check()


def test_superseding_replaces_each_entry_that_is_scheduled(store):
    schedule(store, new("a", NOW_MS, to=RELAY), new("b", NOW_MS, to=RELAY, share=False), new("c"))
    store.take("leased", "a", "b")

    answers = schedule(
        store,
        *(new(one, FAR_MS + 1, payload="new") for one in "abd"),
        supersede=True,
    )

    assert answers == [FAR_MS + 1] * 3
    assert [b'"new"' in store.entries.find(one).message for one in "abcd"] == [1, 1, 0, 1]
    store.check()


# Waking a scanner.


@pytest.mark.parametrize("to", [LIST, RELAY])
def test_scanners_are_told_once_of_the_earliest_wherever_it_stands(store, to):
    store.steps().hand_over(asleep=60)
    store.raw.config_resetstat()

    schedule(store, new("a"), new("b", NOW_MS + 9, to=to), new("c", NOW_MS + 5, to=to), new("d"))

    # First for the scanner that was up, which does not listen here; therefore then for all.
    assert store.raw.info("commandstats")["cmdstat_publish"]["calls"] == 2
    assert store.raw.hget(store.keys["meta"], "timer") == b"%d:" % (NOW_MS + 5)


# Templates.


def test_templates_are_counted_each_by_its_own_entries_and_gone_with_them(store, monkeypatch):
    many = []
    for number in range(3):
        another_template(monkeypatch, number)
        many += [new(f"{number}{step}", NOW_MS) for step in range(number + 1)]

    schedule(store, *many, new("whole", NOW_MS, share=False))

    uses = store.raw.hgetall(store.keys["template_uses"])
    assert sorted(map(int, uses.values())) == [1, 2, 3]
    store.check()
    assert store.steps().hand_over().handed_over == 7
    assert not store.raw.exists(store.keys["templates"], store.keys["template_uses"])


@pytest.mark.parametrize("count", [1, 5])
def test_templates_that_this_process_sent_and_redis_forgot_are_sent_again(
    store, monkeypatch, count
):
    store.schedule("x", NOW_MS, share=True)
    store.steps().hand_over()
    store.check()

    schedule(store, *(new(f"a{step}") for step in range(count)))

    assert store.entries.find("a0").message.count(b"tests.remind") == 1
    assert int(store.raw.hvals(store.keys["template_uses"])[0]) == count
    store.check()


def test_a_process_that_remembers_as_many_templates_as_it_may_still_sends_all(
    store, monkeypatch, limits
):
    limits(schedule_sent=2)
    for number in range(5):
        another_template(monkeypatch, number)
        schedule(store, new(f"{number}a"), new(f"{number}b"))
        store.schedule(f"{number}c", share=True)

    assert len(store.shard.templates) <= 2
    assert sorted(map(int, store.raw.hvals(store.keys["template_uses"]))) == [3] * 5
    store.check()


def test_a_template_is_sent_once_for_many(real_store):
    store = real_store

    def received(count):
        before = store.raw.info("stats")["total_net_input_bytes"]
        many = [new(f"{count}.{step:03}") for step in range(count)]
        schedule(store, *many)
        return store.raw.info("stats")["total_net_input_bytes"] - before

    received(1)

    assert received(200) - received(100) < 100 * len(new("a").record.template)


# A template is kept as long as records share it; each step joins the same message from it.


def templates(store) -> dict[bytes, int]:
    """Name -> uses; the names of both hashes are the same, or the check fails."""
    store.check()
    return {name: int(n) for name, n in store.raw.hgetall(store.keys["template_uses"]).items()}


def hand_over(_, shard_steps):
    shard_steps.hand_over()


def ack(store, _):
    store.take("left", "a")


def cancel(store, _):
    store.entries.change("a", Removal())


def cancel_of_dead(store, _):
    store.take("dead", "a")
    store.entries.change("a", Removal())


def cancel_of_lost(store, _):
    store.take("lapsed", "a")
    assert store.entries.change("a", Removal())[0] is Outcome.UNCERTAIN


@pytest.mark.parametrize("leave", [hand_over, ack, cancel, cancel_of_dead, cancel_of_lost])
def test_the_last_record_takes_its_template_along_and_the_one_before_does_not(
    store, shard_steps, leave
):
    put = store.schedule if leave in (hand_over, cancel) else store.schedule_relayed
    put("b", FAR_MS, share=True)
    put("a", NOW_MS - 1, share=True)
    assert list(templates(store).values()) == [2]
    leave(store, shard_steps)
    assert list(templates(store).values()) == [1]
    store.entries.change("b", Removal())
    put("a", NOW_MS - 1, share=True)
    leave(store, shard_steps)
    assert templates(store) == {}
    assert not store.raw.exists(store.keys["templates"])


def spoil(store):
    [name] = store.raw.hkeys(store.keys["templates"])
    text = store.raw.hget(store.keys["templates"], name)
    store.raw.hset(store.keys["templates"], name, text.replace(b"remind", b"REMIND"))
    return text


def schedule_anew(store):
    store.schedule("new", share=True)


def schedule_some(store):
    records = {one: new_record(one, b"1L6:celery", share=True) for one in ("new", "newer")}
    store.entries.schedule([NewEntry(one, When("at", 0), new) for one, new in records.items()])


def edit_another(store):
    store.edit("whole")


def load_one(store):
    record = new_record("new", b"1L6:celery", share=True)
    entries.restore(store.entries, [OldEntry("new", NOW_MS, NOW_MS * 1000, record)])


@pytest.mark.parametrize("way", [schedule_anew, schedule_some, edit_another, load_one])
def test_a_template_whose_text_was_damaged_is_sent_again_and_nothing_dies_of_it(store, way):
    store.schedule("a", share=True)
    store.schedule("whole")
    text = spoil(store)
    way(store)
    assert store.raw.hvals(store.keys["templates"]) == [text]
    store.check()
    ids = store.raw.hkeys(store.keys["records"])
    seen = store.steps().hand_over()
    assert (seen.handed_over, seen.dead) == (len(ids), [])
    assert {"a", "whole"} <= set(store.arrived())


def test_a_template_is_sent_once_per_process(store):
    store.schedule("a", FAR_MS, share=True)
    received = store.raw.info("stats")["total_net_input_bytes"]
    store.schedule("b", FAR_MS, share=True)
    again = store.raw.info("stats")["total_net_input_bytes"] - received
    stranger = Entries([store.new_scripts()], MEMBERSHIP)
    record = new_record("c", b"1L6:celery", share=True)
    stranger.schedule([NewEntry("c", When("at", FAR_MS), record)])
    first = store.raw.info("stats")["total_net_input_bytes"] - received - again
    stranger.shards[0].scripts.connection.close()
    assert first - again > len(record.template) / 2
    assert list(templates(store).values()) == [3]


# `hand_over` joins a message in its script, and Python does so for all others: with equal results.

TEXTS = st.text(st.characters(blacklist_characters="\n", blacklist_categories=("Cs",)), max_size=30)
# Up to three years around the due time, either way; or not counted from it.
EXPIRIES = st.one_of(
    st.integers(-(10**11), 10**11).map("{:+d}".format),
    st.sampled_from(["null", '"2030-01-01T00:00:00"', "+", "-x", "+1 ", "+-5000", "+nan"]),
)


def joined_by_script(store) -> list[bytes]:
    store.steps().hand_over()
    return store.raw.lrange("celery", 0, -1)


def joined_here(store, task_id) -> list[bytes]:
    try:
        return [store.entries.find(task_id).message]
    except UnreadableRecord:
        return []


@given(
    parts=st.tuples(st.one_of(st.just(""), TEXTS), TEXTS, EXPIRIES, TEXTS, TEXTS, TEXTS),
    due_ms=st.one_of(st.integers(0, NOW_MS), st.integers(0, 10**11)),
    task_id=st.text("ab-:%\n7", min_size=1, max_size=40),
)
def test_a_script_and_python_join_the_same_message(store, parts, due_ms, task_id):
    store.raw.flushdb()
    store.set_ms(NOW_MS)
    store.put(task_id, Template.of(LINES).new_record(LIST, LABELS, parts), due_ms)
    here = joined_here(store, task_id)
    assert joined_by_script(store) == here
    store.check()


@given(parts=st.lists(TEXTS, min_size=4, max_size=8), count=st.integers(9, 11))
def test_a_script_and_python_refuse_a_message_that_does_not_fit(store, parts, count):
    store.raw.flushdb()
    store.set_ms(NOW_MS)
    store.put("a", Template.of((LINES * 2)[:count]).new_record(LIST, LABELS, parts), NOW_MS)
    here = joined_here(store, "a")
    assert len(here) == (count == len(LINES) and len(parts) >= 6)
    assert joined_by_script(store) == here


@pytest.mark.parametrize(
    ("expires", "seen"),
    [(f"+{10**18}", b'"9999-12-31T00:00:00'), (f"-{10**18}", b'"1970-01-01T00:00:00')],
)
def test_an_expiry_past_all_dates_is_the_last_or_the_first_one(store, expires, seen):
    parts = ["", "null", expires, '""', '""', '""']
    store.put("a", Template.of(LINES).new_record(LIST, LABELS, parts), NOW_MS)
    [here] = joined_here(store, "a")
    assert seen in here
    assert joined_by_script(store) == [here]


def put_expiring(store, due_ms, expires_ms):
    store.put("a", new_record("a", LIST, share=True, expires=f"+{expires_ms}"), due_ms)


def expires_at(message, ms):
    """Whether a message expires at that time, to the microsecond as `datetime` writes it."""
    wanted = (EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="microseconds")
    return json.loads(message)["headers"]["expires"] == wanted


@given(st.integers(0, MAX_DUE_MS), st.integers(0, 10**12))
@example(951_782_400_000, 0)  # 2000-02-29, the leap day of a century year
@example(4_107_542_399_999, 1)  # 2100-03-01, in a century year without a leap day
@example(1_767_225_599_999, 0)  # the last millisecond of a year
@example(0, 0)
def test_the_date_of_a_relative_expiry_is_the_one_that_datetime_writes(store, due_ms, expires_ms):
    store.raw.flushdb()
    store.set_ms(NOW_MS)
    put_expiring(store, due_ms, expires_ms)
    assert expires_at(store.entries.find("a").message, due_ms + expires_ms)


def test_a_relative_expiry_moves_with_the_due_time(store):
    put_expiring(store, FAR_MS, 60_000)
    store.reschedule("a", When("at", NOW_MS))
    store.steps().hand_over()
    assert expires_at(store.raw.rpop("celery"), NOW_MS + 60_000)


@pytest.mark.parametrize("spoilt", [LINES[0], "\n".join(LINES).replace("tests", "other")])
def test_a_template_that_is_not_what_its_name_says_is_not_used(store, shard_steps, spoilt):
    for task_id, to in (("list", LIST), ("relayed", header_for("R", ROUTE))):
        store.put(task_id, new_record(task_id, to, share=True), NOW_MS)
    [name] = store.raw.hkeys(store.keys["templates"])
    store.raw.hset(store.keys["templates"], name, spoilt)
    with pytest.raises(UnreadableRecord, match="template is damaged"):
        store.entries.find("list")
    assert shard_steps.hand_over().dead == [("list", "template is damaged")]
    assert store.raw.llen("celery") == 0
    [claimed] = store.take("leased", "relayed")
    with pytest.raises(ValueError, match="template is damaged"):
        _ = claimed.message


def test_the_claim_the_list_and_the_cancel_bring_that_message_as_well(store):
    store.schedule_relayed("a", share=True)
    message = store.entries.find("a").message
    assert [one.message for one in store.entries.waiting(Listing(0, MAX_DUE_MS))] == [message]
    claims = store.take("unsent", "a")
    assert [one.message for one in claims] == [message]
    outcome, change = store.entries.change("a", Removal())
    assert (outcome, change.cancelled.message) == (Outcome.DONE, message)


@pytest.mark.parametrize("step", ["page", "claim"])
def test_a_template_that_many_share_is_sent_once(store, step):
    for number in range(3):
        store.schedule_relayed(f"a{number}", share=True)
    reply = store.scripts.call(step, **arguments(step, limit=9))
    (name,) = store.raw.hkeys(store.keys["templates"])
    assert [one.name for one in reply.templates] == [name]
