"""The protocol of calls, searched over an unreliable network; and weaker ones, to see them fail.

Small searches rather than a large one: each has the calls of one kind of accident, and all that a
network, a clock and a death can do to them.
"""

from dataclasses import replace
from functools import cache

import pytest

from tests.protocol import calls, network
from tests.protocol.calls import EFFECTS, NOTHING_THERE, REFUSALS, TIMEOUT, Ordered
from tests.protocol.network import GIVEN_UP, search
from tests.protocol.world import Scenario

# Clients A and B, and their calls in turn. An interrupted client goes on with its next call.
# B's clock is behind, so that its calls seem older than they are.
ONE_CLIENT = Scenario(
    (("schedule", "reschedule", "cancel"),), interrupted=(0, 1), lags=((0,), (1,))
)
SCHEDULE_OR_CANCEL = Scenario((("schedule",), ("cancel",)), interrupted=(0, 1))
MOVE_OR_CANCEL = Scenario((("reschedule",), ("cancel",)), held=True, interrupted=(0, 1))
SCHEDULE_OR_MOVE = Scenario((("schedule",), ("reschedule",)), held=True, lags=((1, 0),))
TWO_CLIENTS = Scenario((("schedule", "cancel"), ("reschedule",)), tombstones=False, lags=((0, 1),))
TWO_MOVES = Scenario((("reschedule", "reschedule"),), held=True)
# The same id once more: first a call that comes too late, or before a cancel that comes too late.
SCHEDULE_LATE = Scenario((("schedule", "cancel"),), held=True)
CANCEL_LATE = Scenario((("cancel", "schedule"),), held=True)
TWO_SCHEDULES = Scenario((("schedule", "schedule"),))
TWO_SCHEDULERS = Scenario((("schedule",), ("schedule",)), tombstones=False)
# Two scanners, whose steps are on the wire as well; their own work takes no time.
RELAYED = {
    kind: Scenario(((kind,),), held=True, interrupted=(), lags=((0, 0),), claims=2, still=True)
    for kind in ("schedule", "reschedule", "cancel")
}

SCENARIOS = {
    "one client": ONE_CLIENT,
    "schedule or cancel": SCHEDULE_OR_CANCEL,
    "move or cancel": MOVE_OR_CANCEL,
    "two clients": TWO_CLIENTS,
    "two moves": TWO_MOVES,
    "schedule late": SCHEDULE_LATE,
    "cancel late": CANCEL_LATE,
    **{f"relayed, {kind}": scenario for kind, scenario in RELAYED.items()},
}

COPIES, MOVED, ANSWER = "two unmarked copies", "moved twice", "a repetition had another answer"
DONE, NOTHING = "cancelled, yet held or delivered", "cancelled, and said that there was nothing"
HELD, UNDONE = "an older schedule after a newer cancel", "an older reschedule after a newer resch"
AFTER_ANSWER = "took effect after an answer that said that it had not"
UNCANCELLED = "an older cancel after a newer schedule"

WRONG = [
    (calls.Tombstones, ONE_CLIENT, COPIES),
    (calls.Tombstones, ONE_CLIENT, MOVED),
    (calls.Tombstones, ONE_CLIENT, NOTHING),
    (calls.Tombstones, ONE_CLIENT, HELD),
    (calls.Tombstones, SCHEDULE_OR_CANCEL, DONE),
    (calls.Tombstones, TWO_MOVES, UNDONE),
    (calls.Tombstones, CANCEL_LATE, UNCANCELLED),
    (calls.TombstonesAlways, ONE_CLIENT, MOVED),
    (calls.TombstonesAlways, ONE_CLIENT, NOTHING),
    (calls.TombstonesAndDeadline, ONE_CLIENT, MOVED),
    (calls.TombstonesAndDeadline, ONE_CLIENT, NOTHING),
    (calls.AnswersByCount, ONE_CLIENT, COPIES),
    (calls.AnswersByCount, TWO_MOVES, MOVED),
    (calls.WithoutDeadline, ONE_CLIENT, COPIES),
    (calls.WithoutDeadline, replace(SCHEDULE_OR_CANCEL, interrupted=()), DONE),
    (calls.WithoutDeadline, ONE_CLIENT, HELD),
    (calls.WithoutOrder, ONE_CLIENT, HELD),
    (calls.WithoutOrder, TWO_MOVES, UNDONE),
    (calls.WithoutTimeOfChange, TWO_MOVES, UNDONE),
    (calls.WithoutTimeOfChange, CANCEL_LATE, UNCANCELLED),
    (calls.NewOperationWhenStale, SCHEDULE_OR_MOVE, AFTER_ANSWER),
    (calls.CancelsWithoutFence, SCHEDULE_LATE, HELD),
    (calls.LetsEqualTimesPass, SCHEDULE_OR_CANCEL, HELD),
    (calls.LetsEqualTimesPass, TWO_MOVES, UNDONE),
    (calls.TokenOfTheScanner, RELAYED["reschedule"], "lost"),
    (calls.TokenOfTheScanner, RELAYED["schedule"], "lost"),
]


@cache
def searched(name: str):
    return search(SCENARIOS[name], Ordered())


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_call_takes_effect_once_and_in_order_whatever_the_network_does(name):
    assert searched(name).way == []


def test_the_searches_see_every_answer_and_refusal():
    answers = set().union(*(searched(name).answers for name in SCENARIOS))
    seen = {*EFFECTS, *NOTHING_THERE, "conflict", "in_flight", "late", "stale"}
    assert answers == seen
    assert seen | {"join"} >= set(REFUSALS)
    assert sum(searched(name).worlds for name in SCENARIOS) > 40_000


@pytest.mark.parametrize(
    ("protocol", "scenario", "wrong"), WRONG, ids=lambda it: getattr(it, "__name__", None)
)
def test_a_weaker_protocol_is_found_out(protocol, scenario, wrong):
    assert search(scenario, protocol(), until=wrong).wrong.startswith(wrong)


def test_the_way_to_a_second_copy_is_a_late_request():
    assert search(ONE_CLIENT, calls.Tombstones(), until=COPIES).way == [
        "A sends schedule",
        "schedule 0 arrives: held, its reply is lost",
        "handed over",
        "schedule 0 arrives: held, its reply is lost",
        "handed over",
    ]


def test_equal_times_are_those_of_an_interruption_and_a_call_within_one_tick():
    assert search(SCHEDULE_OR_CANCEL, calls.LetsEqualTimesPass(), until=HELD).way == [
        "A sends schedule",
        "A is interrupted",
        "B sends cancel",
        "cancel 1 arrives: not_found, its reply is lost",
        "schedule 0 arrives: held, its reply is lost",
    ]


def test_a_claim_that_arrives_twice_needs_two_tokens():
    assert search(RELAYED["schedule"], calls.TokenOfTheScanner()).way == [
        "A sends schedule",
        "0 sends a claim",
        "claim 0 arrives",
        "0 publishes",
        "0 sends an ack",
        "ack 0 arrives",
        "schedule 0 arrives: held, its reply is lost",
        "claim 0 arrives, its reply is lost",
        "ack 0 arrives",
    ]


# A clock that is finer than a script.


@pytest.fixture
def longer(monkeypatch):
    """A time-out in which several scripts can run, each in a tick of its own."""
    for module in (calls, network):
        monkeypatch.setattr(module, "TIMEOUT", 4)


@pytest.mark.usefixtures("longer")
@pytest.mark.parametrize("kinds", [("schedule", "cancel"), ("reschedule", "reschedule")])
def test_equal_times_may_pass_where_no_two_things_have_one_time(kinds):
    fine = Scenario((kinds,), held=kinds[0] != "schedule", fine=True)
    assert search(fine, calls.LetsEqualTimesPass()).way == []
    assert search(fine, calls.WithoutOrder()).wrong.startswith("an older ")


# An entry that is handed over soon after its last change leaves a fence.


def test_without_it_an_interrupted_schedule_runs_after_a_later_call_whose_task_has_left():
    without = calls.FencesWhatCallsRemove()
    assert search(TWO_SCHEDULES, without).way == [
        "A sends schedule",
        "A is interrupted",
        "A sends schedule",
        "schedule 1 arrives: held, its reply is lost",
        "handed over",
        "schedule 0 arrives: held, its reply is lost",
    ]
    assert search(SCHEDULE_OR_MOVE, without).wrong == "an older schedule after a newer reschedule"


@pytest.mark.parametrize("scenario", [TWO_SCHEDULES, TWO_SCHEDULERS, SCHEDULE_OR_MOVE, CANCEL_LATE])
def test_with_it_an_id_that_is_scheduled_again_is_scheduled_in_order(scenario):
    assert search(scenario, Ordered()).way == []


# Redis's clock is set forward or back, once, at any time.

CLOCK = {
    kinds: {"clients": (kinds,), "held": kinds[0] != "schedule", "lags": ((0,),)}
    for kinds in (("schedule", "cancel"), ("reschedule", "reschedule"), ("cancel", "schedule"))
}


@pytest.mark.parametrize("kinds", CLOCK)
def test_a_clock_that_is_set_forward_by_less_than_a_time_out_breaks_nothing(kinds):
    assert search(Scenario(**CLOCK[kinds], jumps=(TIMEOUT - 1,)), Ordered()).way == []


@pytest.mark.parametrize("kinds", CLOCK)
def test_a_clock_that_is_set_back_by_less_lets_only_ended_calls_come_too_late(kinds):
    back = Scenario(**CLOCK[kinds], jumps=(1 - TIMEOUT,))
    assert search(back, Ordered(), until=GIVEN_UP).wrong == GIVEN_UP
    assert search(back, Ordered(), until="an older ").wrong.startswith("an older ")
    assert search(back, Ordered(), ignoring=("an older ", GIVEN_UP)).way == []


def test_otherwise_a_clock_that_is_set_back_by_less_breaks_nothing_and_a_refusal_tells_it():
    uninterrupted = Scenario(**CLOCK["schedule", "cancel"], jumps=(1 - TIMEOUT,), interrupted=())
    found = search(uninterrupted, Ordered(), ignoring=GIVEN_UP)
    assert found.way == []
    assert "join" in found.answers


@pytest.mark.parametrize("jump", [TIMEOUT, -TIMEOUT])
def test_a_clock_that_is_set_by_a_whole_time_out_may_double_a_call_that_is_repeated(jump):
    jumping = Scenario(**CLOCK["schedule", "cancel"], jumps=(jump,), interrupted=())
    assert search(jumping, Ordered(), until=COPIES).wrong == COPIES


def test_a_caller_whose_clock_runs_ahead_lets_only_ended_calls_come_too_late():
    ahead = Scenario((("reschedule", "reschedule"),), held=True, lags=((-1,),))
    assert search(replace(ahead, interrupted=()), Ordered(), ignoring=GIVEN_UP).way == []
    assert search(ahead, Ordered(), until=GIVEN_UP).wrong == GIVEN_UP
    assert search(ahead, Ordered(), until="an older ").wrong.startswith("an older ")
    assert search(ahead, Ordered(), ignoring=("an older ", GIVEN_UP)).way == []
