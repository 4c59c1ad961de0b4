"""A call takes effect once and in order: late, overtaken and repeated requests change nothing."""

from dataclasses import replace

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Outcome
from celery_delayq.core.store.changes import Removal
from tests.store import requests
from tests.store.requests import TIMEOUT_US, cancel, now_us, reschedule, schedule
from tests.store.support import FAR_MS, NOW_MS, TIMEOUT_MS

pytestmark = pytest.mark.core


# A late request, or one that a newer call has overtaken, changes nothing; how it is known.


KEPT = ("calls", "calls_old")
HOUR_US = 3_600_000_000

CALLS = {
    "schedule": lambda store: schedule(store, "new"),
    "slice": lambda store: schedule(store, "new", "other", share=True),
    "supersede": lambda store: schedule(store, "held", supersede=True),
    "cancel": lambda store: cancel(store, "held"),
    "reschedule": lambda store: reschedule(store, "held"),
    "reschedule by": lambda store: reschedule(store, "held", "by", 1000),
    "cancel nothing": lambda store: cancel(store, "none"),
    "reschedule nothing": lambda store: reschedule(store, "none"),
}
each_call = pytest.mark.parametrize("kind", CALLS)


def made(store, kind):
    store.schedule("held", FAR_MS)
    return CALLS[kind](store)


# The end of a call.


@each_call
def test_up_to_its_deadline_a_request_is_answered(store, kind):
    call = made(store, kind)
    store.set_us(call.deadline)
    assert call.anew().send()[0] == b"answer"


def ended(store, call):
    store.set_us(call.deadline + 1)
    return call


def endless(store, call):
    return replace(call, deadline=now_us(store) + TIMEOUT_US + 1)


def unknown(store, call):
    store.raw.flushdb()
    store.set_ms(NOW_MS)
    return call


@each_call
@pytest.mark.parametrize(
    ("becomes", "verdict"),
    [(ended, b"late"), (endless, b"join"), (unknown, b"join")],
    ids=["deadline over", "deadline further ahead than any call lasts", "store knows nobody"],
)
def test_a_request_out_of_its_time_changes_nothing_at_all(store, kind, becomes, verdict):
    call = becomes(store, made(store, kind))
    before = store.contents(all_keys=True)
    assert call.send() == call.anew().send() == [verdict]
    assert store.contents(all_keys=True) == before


@each_call
def test_after_its_deadline_a_repetition_is_told_nothing(store, kind):
    call = made(store, kind)
    assert call.send()[0] == b"answer"
    store.set_us(call.deadline + 1)
    before = store.snapshot()
    assert call.send() == [b"late"]
    assert store.snapshot() == before


@pytest.mark.parametrize(("back_s", "verdict"), [(1, b"late"), (4, b"answer")])
def test_a_clock_that_is_set_back_makes_a_late_request_that_much_younger(store, back_s, verdict):
    call = schedule(store, "a")
    store.set_us(call.deadline + 2_000_000 - back_s * 1_000_000)
    assert call.send()[0] == verdict


def test_the_reply_tells_the_time_whatever_the_verdict(store):
    call = schedule(store, "a")
    for us in (call.deadline + 1, call.deadline - TIMEOUT_US - 1, call.deadline):
        store.set_us(us)
        arguments = {"operation": b"o", "issued": us, "deadline": call.deadline, "began": us}
        arguments |= {"store": call.store_name, **call.arguments}
        assert store.scripts.call("schedule", **arguments)[0] == us


# Order.


@pytest.mark.parametrize("change", ["cancel", "cancel nothing", "reschedule nothing"])
def test_a_fence_refuses_what_was_asked_for_the_id_before(store, change):
    late = {
        "schedule": schedule(store, "a"),
        "slice": schedule(store, "x", "a"),
        "supersede": schedule(store, "a", supersede=True),
    }
    if change == "cancel":
        store.schedule("a")
    store.set_us(now_us(store) + 1)
    (reschedule if change == "reschedule nothing" else cancel)(store, "a").answer()
    before = store.snapshot()
    for call in late.values():
        assert call.send() == call.send() == [b"stale"]
        assert call.operation not in store.known_calls()[0]
    assert store.snapshot() == before
    # A caller that is still there and repeats the call succeeds; a slice as a whole.
    assert late["slice"].anew().answer().split() == [b"%d" % FAR_MS] * 2
    assert store.places("a") == store.places("x") == ["due"]


def test_a_fence_lets_pass_what_is_asked_in_the_same_microsecond_or_for_another_id(store):
    other = schedule(store, "b")
    store.set_us(now_us(store) + 1)
    cancel(store, "a").answer()
    call = schedule(store, "a")
    assert call.issued == now_us(store)
    assert call.send()[0] == other.send()[0] == b"answer"


@pytest.mark.parametrize("refusal", [b"in_flight", b"unreadable"])
def test_a_change_that_left_an_entry_where_it_is_leaves_no_fence(store, refusal):
    store.at("leased")
    if refusal == b"unreadable":
        store.raw.hset(store.keys["records"], "a", "9")
    assert cancel(store, "a").answer().split(b":")[0] == refusal
    assert store.known_calls()[1] == []


@pytest.mark.parametrize("late", [cancel, reschedule])
@pytest.mark.parametrize("newer", ["schedule", "supersede", "reschedule"])
def test_a_change_that_was_asked_for_before_the_last_one_is_refused(store, late, newer):
    shard_steps = store.steps()
    if newer == "reschedule":
        store.schedule("a", FAR_MS)
    if newer == "supersede":
        store.at("leased", by=shard_steps)
    store.set_ms(NOW_MS + 1)
    call = late(store, "a")
    store.set_ms(NOW_MS + 3)
    if newer == "reschedule":
        assert reschedule(store, "a").answer()
    else:
        assert schedule(store, "a", supersede=newer == "supersede").answer()
    before = store.contents(all_keys=True)
    assert call.send() == [b"stale"]
    assert store.contents(all_keys=True) == before
    assert call.anew().answer().startswith(b"done")


def test_a_caller_that_still_waits_issues_its_request_anew(store_between):
    """Another process cancels between the making of the request and its arrival."""
    store, between, done = store_between, store_between.between, []

    def overtake():
        if not done:
            store.set_us(now_us(store) + 1_000_000)
            done.append(cancel(store, "a").answer())

    between.before("schedule", overtake)
    assert store.schedule("a", FAR_MS) == FAR_MS
    assert done == [b"not_found"]
    assert between.asked["schedule"] == 2


def test_a_cancel_finds_what_an_overtaken_reschedule_left(store):
    store.schedule("a", FAR_MS)
    call = reschedule(store, "a", "by", 5)
    store.set_ms(NOW_MS + 1)
    store.reschedule("a", When("at", NOW_MS + 9))
    store.entries.change("a", Removal())
    assert call.send() == [b"answer", b"not_found"]
    assert store.entries.change("a", Removal())[0] is Outcome.NOT_FOUND


# An entry delivered soon after its last change leaves a fence against older requests.


def handed_over(store):
    store.steps().hand_over()


def relayed(store):
    store.take("left", "a")


each_way = pytest.mark.parametrize(
    ("put", "leave"), [("schedule", handed_over), ("schedule_relayed", relayed)]
)


@each_way
def test_an_entry_that_left_young_refuses_a_schedule_from_before_it(store, put, leave):
    late = schedule(store, "a")
    store.set_us(now_us(store) + 1)
    getattr(store, put)("a", NOW_MS)
    leave(store)
    assert late.send() == [b"stale"]
    assert store.places("a") == []


@each_way
def test_an_entry_that_waited_longer_than_a_call_lasts_leaves_no_fence(store, put, leave):
    getattr(store, put)("a", NOW_MS + 60_000)
    store.set_ms(NOW_MS + 60_000)
    leave(store)
    assert store.places("a") == []
    assert store.known_calls()[1] == []


@each_call
def test_a_request_from_before_the_clock_was_set_back_is_refused(store, kind):
    call = made(store, kind)
    store.set_us(call.issued - 250_001)
    shorter = replace(call, deadline=call.deadline - 3_000_000)
    before = store.snapshot()
    assert shorter.send() == [b"join"]
    assert store.snapshot() == before
    assert shorter.anew().send()[0] == b"answer"


def moved(store):
    return reschedule(store, "a", ms=FAR_MS + 7)


def replaced(store):
    return schedule(store, "a", conflict="replace", when=When("at", FAR_MS + 7))


BACK_US = [250_010, 60_000_000]  # further ahead than a request may be


@pytest.mark.parametrize("late", [cancel, reschedule])
@pytest.mark.parametrize("newer", [moved, replaced])
@pytest.mark.parametrize("back_us", BACK_US)
def test_a_change_made_after_the_clock_was_set_back_is_not_undone(store, late, newer, back_us):
    store.schedule("a", FAR_MS)
    start_us = now_us(store) - back_us
    store.set_us(start_us)
    call = late(store, "a")
    store.set_us(start_us + 1)
    newer(store).answer()
    before = store.contents(all_keys=True)

    assert call.send() == [b"stale"]

    assert store.contents(all_keys=True) == before
    assert call.anew().answer().startswith(b"done")


# Answers and fences are kept as long as a request may arrive, and not much longer.


def kept(store) -> int:
    return sum(store.raw.hlen(store.keys[name]) for name in KEPT)


def another_call(store):
    cancel(store, "nobody").answer()


def pass_us(store, us):
    store.set_us(now_us(store) + us)


at_any_time = pytest.mark.parametrize("started", range(0, TIMEOUT_US * 2, TIMEOUT_US // 4))


def moments(store, deadline):
    """Calls at every moment of a generation, until this deadline."""
    while now_us(store) < deadline:
        pass_us(store, TIMEOUT_US // 20)
        another_call(store)
        yield


@at_any_time
def test_an_answer_is_known_as_long_as_its_call_lasts(store, started):
    another_call(store)
    pass_us(store, started)
    call = schedule(store, "a", when=When("after", 0))
    first = call.answer()
    store.steps().hand_over()
    for _ in moments(store, call.deadline):
        assert now_us(store) > call.deadline or call.answer() == first
    assert store.arrived() == ["a"]


@at_any_time
def test_a_fence_stands_as_long_as_a_request_before_it_may_come(store, started):
    another_call(store)
    pass_us(store, started)
    late = schedule(store, "a")
    pass_us(store, 1)
    cancel(store, "a").answer()
    for _ in moments(store, late.deadline):
        assert late.send() in ([b"stale"], [b"late"])
    assert store.places("a") == []


def test_an_answer_is_kept_for_the_longest_call_of_all(store):
    long = 20.0
    requests.join(store, timeout=long)
    call = requests.schedule(store, "a", when=When("after", 0))
    call = requests.replace(call, deadline=call.issued + int(long * 1_000_000))
    first = call.answer()
    store.steps().hand_over()
    for _ in range(19):
        pass_us(store, 1_000_000)
        another_call(store)
        assert call.answer() == first


def test_answers_and_fences_that_no_request_can_need_are_forgotten(store):
    for number in range(50):
        cancel(store, f"a{number}").answer()
    assert kept(store) == 100
    for _ in range(3):
        pass_us(store, TIMEOUT_US + 1000)
        another_call(store)
    # One call per generation, each with its answer and its fence; the last one began a third.
    assert kept(store) <= 6


@pytest.mark.parametrize("kind", ["schedule", "cancel", "reschedule"])
def test_every_kind_of_call_turns_the_generations(store, kind):
    another_call(store)
    pass_us(store, TIMEOUT_US + 1000)
    if kind == "schedule":
        schedule(store, "a").answer()
    else:
        store.schedule("a", FAR_MS)
        store.raw.hset(store.keys["meta"], "turned", now_us(store) // 1000 - TIMEOUT_MS - 1)
        store.raw.delete(store.keys["calls_old"])
        {"cancel": cancel, "reschedule": reschedule}[kind](store, "a").answer()
    assert store.raw.exists(store.keys["calls_old"])


def test_after_the_clock_was_set_back_by_an_hour_calls_go_on_and_are_forgotten(store):
    for number in range(20):
        cancel(store, f"a{number}").answer()
    pass_us(store, -HOUR_US)
    call = schedule(store, "a", when=When("after", 0))
    first = call.answer()
    store.steps().hand_over()
    another_call(store)
    assert call.answer() == first
    for _ in range(4):
        pass_us(store, TIMEOUT_US + 1000)
        another_call(store)
    assert kept(store) <= 8
    assert store.arrived() == ["a"]


def test_an_answer_from_before_the_clock_was_set_back_is_known_after_it(store):
    another_call(store)
    pass_us(store, 1_000_000)
    call = cancel(store, "a")
    first = call.answer()
    pass_us(store, -HOUR_US)
    another_call(store)  # begins another generation
    store.schedule("a", FAR_MS)
    again = replace(call, issued=call.issued - HOUR_US, deadline=call.deadline - HOUR_US)
    assert again.answer() == first == b"not_found"
    assert store.places("a") == ["due"]


@pytest.mark.parametrize("hour", [-HOUR_US, HOUR_US], ids=["back", "forward"])
def test_a_caller_follows_a_clock_that_was_set_by_an_hour(store, hour):
    store.schedule("a", FAR_MS)
    pass_us(store, hour)
    assert store.schedule("b", FAR_MS) == FAR_MS
    # A record of the future can still be changed.
    assert [store.reschedule(one, When("at", 7))[1] for one in "ab"] == [7, 7]


def test_a_call_is_told_the_same_after_redis_s_clock_was_set_forward(store):
    store.schedule("a", FAR_MS)
    another_call(store)
    pass_us(store, TIMEOUT_US - 100_000)
    call = cancel(store, "a")
    first = call.answer()
    pass_us(store, 200_000)
    another_call(store)  # begins a generation
    pass_us(store, 600_000)  # the clock; so the caller's end of the call is later as well
    now = now_us(store)

    assert requests.replace(call, issued=now, deadline=now + TIMEOUT_US).answer() == first


def test_a_turn_that_is_no_time_is_mended_by_the_next_call(store):
    store.raw.hset(store.keys["meta"], "turned", "x")
    another_call(store)
    assert store.raw.hget(store.keys["meta"], "turned").isdigit()


# A call takes effect once: each repetition of its request gets the first answer again.


AT_ONCE, IN_A_DAY = When("after", 0), When("after", 86_400_000)
NOW, FAR = b"%d" % NOW_MS, b"%d" % FAR_MS
LISTS = pytest.mark.parametrize("to", ["celery", None], ids=["list", "relay"])
SHARE = pytest.mark.parametrize("share", [False, True], ids=["whole", "template"])


def is_told_the_same(store, call, first):
    """Whether a repetition changes only the records of calls, and gets that answer."""
    before = store.snapshot()
    store.set_us(requests.now_us(store) + 1)
    return call.answer() == call.anew().answer() == first and store.snapshot() == before


@SHARE
@LISTS
@pytest.mark.parametrize("when", [IN_A_DAY, When("at", FAR_MS)], ids=["after", "at"])
def test_a_repetition_while_the_entry_waits_writes_nothing(store, to, when, share):
    call = schedule(store, "a", to=to, when=when, share=share)
    assert call.answer() == FAR
    store.set_ms(NOW_MS + 1000)
    assert is_told_the_same(store, call, FAR)
    store.check()


MADE = {
    "schedule": lambda store: schedule(store, "a", when=AT_ONCE),
    "share": lambda store: schedule(store, "a", when=AT_ONCE, share=True),
    "relay": lambda store: schedule(store, "a", when=AT_ONCE, to=None),
    "supersede": lambda store: schedule(store, "a", when=AT_ONCE, to=None, supersede=True),
    "wait": lambda store: schedule(store, "a", when=IN_A_DAY),
    "far": lambda store: schedule(store, "a", when=When("at", 2**53)),
    "cancel": lambda store: cancel(store, "a"),
    "move": lambda store: reschedule(store, "a", "at", NOW_MS),
    "move after": lambda store: reschedule(store, "a", "after", 1000),
    "move by": lambda store: reschedule(store, "a", "by", 1000),
    "move far": lambda store: reschedule(store, "a", "at", 2**53),
}
STEPS = {
    "due": lambda store: store.schedule("a", NOW_MS),
    "waits": lambda store: store.schedule("a", FAR_MS),
    "for a relay": lambda store: store.schedule_relayed("a", NOW_MS),
    "cancelled": lambda store: store.entries.change("a", Removal()),
    "moved": lambda store: store.reschedule("a", When("at", FAR_MS + 7)),
    "delivered": lambda store: store.steps().hand_over(),
    "claimed": lambda store: store.take("leased", "a", lease=1),
    "published": lambda store: store.take("left", "a"),
    "refused": lambda store: store.take("refused", "a"),
    "two seconds": lambda store: store.set_ms(NOW_MS + 2000),
}
BY = b"done:d%d" % (FAR_MS + 1000)
# Before, the call, its first answer, meanwhile, and where the entry then is, until when.
ROWS = [
    ("", "schedule", NOW, "delivered", {}),
    ("", "share", NOW, "delivered", {}),
    ("", "relay", NOW, "claimed", {"leased": NOW_MS + 1000}),
    ("", "relay", NOW, "published", {}),
    ("", "relay", NOW, "refused", {"refused": NOW_MS + 60_000}),
    ("", "wait", FAR, "cancelled", {}),
    ("", "wait", FAR, "cancelled, due", {"due": NOW_MS}),
    ("", "wait", FAR, "moved", {"due": FAR_MS + 7}),
    ("due", "schedule", b"scheduled", "delivered", {}),
    ("", "far", b"late", "", {}),
    ("for a relay, claimed", "supersede", b"%d" % (NOW_MS + 2), "published", {}),
    ("waits", "cancel", b"done", "due", {"due": NOW_MS}),
    ("", "cancel", b"not_found", "waits", {"due": FAR_MS}),
    ("due, delivered", "cancel", b"handed_over", "waits", {"due": FAR_MS}),
    ("for a relay, claimed", "cancel", b"in_flight", "two seconds", {"leased": NOW_MS + 1001}),
    ("waits", "move by", BY, "", {"due": FAR_MS + 1000}),
    ("waits", "move", b"done:d%d" % NOW_MS, "moved", {"due": FAR_MS + 7}),
    ("waits", "move after", b"done:d%d" % (NOW_MS + 1001), "moved", {"due": FAR_MS + 7}),
    ("waits", "move by", BY, "moved", {"due": FAR_MS + 7}),
    ("waits", "move", b"done:d%d" % NOW_MS, "delivered", {}),
    ("", "move", b"not_found", "due", {"due": NOW_MS}),
    ("waits", "move far", b"too_late", "", {"due": FAR_MS}),
]


def take(store, steps):
    for step in filter(None, steps.split(", ")):
        STEPS[step](store)
        store.set_us(requests.now_us(store) + 1000)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}; {row[1]}; {row[3]}")
def test_a_repetition_gets_the_first_answer_and_changes_nothing(store, row):
    before, call, first, meanwhile, left = row
    take(store, before)
    made = MADE[call](store)
    assert made.answer() == first
    take(store, meanwhile)
    assert is_told_the_same(store, made, first)
    assert {place: store.score(place, "a") for place in store.places("a")} == left
    store.check()


def test_a_repetition_after_twenty_thousand_others_have_left_brings_nothing_back(store):
    """Enough to replace both generations of tombstones; a call's answer is kept by time."""
    call, shard_steps = MADE["schedule"](store), store.steps(batch_size=1000)
    first = call.answer()
    shard_steps.hand_over()
    for _ in range(2):
        store.flood(10_000)
        while shard_steps.hand_over().handed_over:
            pass
    assert not store.raw.hexists(store.keys["tombstones"], "a")
    assert not store.raw.hexists(store.keys["tombstones_old"], "a")
    store.raw.delete("celery")
    assert is_told_the_same(store, call, first)
    assert shard_steps.hand_over().handed_over == 0


def test_only_the_first_answer_to_a_cancel_has_the_message(store):
    store.schedule("a", FAR_MS, payload="x")
    call = cancel(store, "a")
    verdict, answer, (told,) = call.send()
    assert (verdict, answer, told.place) == (b"answer", b"done", 1)
    assert int(told.when) == NOW_MS * 1000
    assert b"x" in told.message
    assert call.send() == [b"answer", b"done", []]


# A slice of a bulk has one answer for all.


@SHARE
@LISTS
def test_a_repetition_of_a_slice_gets_all_its_answers(store, to, share):
    store.schedule("held")
    call = schedule(store, "a", "held", "b", "a", to=to, share=share)
    first = call.answer()
    assert first.split() == [FAR, b"scheduled", FAR, b"scheduled"]
    assert is_told_the_same(store, call, first)
    store.check()


def test_a_repetition_of_a_slice_brings_back_nothing_that_left(store):
    call, shard_steps = schedule(store, "moved", "cancelled", when=IN_A_DAY), store.steps()
    first = call.answer()
    store.reschedule("moved", When("at", NOW_MS))
    shard_steps.hand_over()
    assert store.entries.change("cancelled", Removal())[0] is Outcome.DONE
    assert is_told_the_same(store, call, first)
    assert [store.places(one) for one in ("moved", "cancelled")] == [[], []]
    assert shard_steps.hand_over().handed_over == 0
