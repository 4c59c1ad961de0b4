"""Calls under one key, searched over an unreliable network; and weaker protocols that fail."""

from functools import cache

import pytest

from tests.protocol import keys
from tests.protocol.calls import REFUSALS
from tests.protocol.keyed import Keys, search
from tests.protocol.keys import Keyed

# Where one is held at the start, it has the last number. What is claimed may come back.
CANCEL = Keys((("replace", "cancel"),), held=True)
CANCEL_BY_ID = Keys((("replace", "cancel 2"),), held=True)
KEEP = Keys((("replace", "keep"),), held=True)
KEEP_YOUNG = Keys((("replace", "replace", "keep"),), lags=((0,),), interrupted=(1,))
MOVE = Keys((("replace", "move"),), held=True)
REPLACE = Keys((("replace", "replace"),))
CANCEL_LATE = Keys((("cancel", "replace"),), held=True)
WITHOUT_KEY = Keys((("plain 2", "plain 2"),), held=True)
ONCE_WITHOUT_KEY = Keys((("plain 2", "replace"),), held=True)
SAME_ID = Keys((("replace 2",), ("keep 2",)), held=True)
RELAYED = Keys((("reject", "replace"),), held=True, claims=1, interrupted=(0, 1))
RELAYED_CANCEL = Keys((("cancel", "replace", "cancel"),), held=True, claims=1, lags=((0,),))
RELAYED_KEEP = Keys((("replace",), ("keep",)), held=True, claims=1)
RELAYED_TWICE = Keys((("reject", "cancel"),), held=True, claims=2, buries=True)
REVIVED = Keys((("replace", "move 2"),), held=True, claims=1, buries=True)

SCENARIOS = {
    name.lower(): scenario for name, scenario in globals().items() if isinstance(scenario, Keys)
}

AFTER_CANCEL = "an older replace after a newer cancel"
AFTER_KEEP = "an older replace after a newer keep"
AFTER_MOVE = "an older replace after a newer move"
CANCELS = "an older cancel after a newer cancel"
AFTER_REPLACE = "an older replace after a newer replace"
UNHELD, NOTHING = "waits, and does not hold its key", "conflict, with nothing in the way"

WRONG = [
    (keys.NeverLooksAtTheKey, CANCEL, AFTER_CANCEL),
    (keys.NeverLooksAtTheKey, REPLACE, AFTER_REPLACE),
    (keys.NeverLooksAtTheHolder, MOVE, AFTER_MOVE),
    (keys.NeverLooksAtTheHolder, CANCEL_LATE, "an older cancel after a newer replace"),
    (keys.NeverLooksAtTheEntry, WITHOUT_KEY, "an older plain 2 after a newer plain 2"),
    (keys.LooksOnlyAtWhatWaits, RELAYED, "an older reject after a newer replace"),
    (keys.FenceOrHolder, KEEP, AFTER_KEEP),
    (keys.FenceOrHolder, RELAYED_CANCEL, CANCELS),
    (keys.NoFenceForNothing, CANCEL, AFTER_CANCEL),
    (keys.NoFenceForNothing, MOVE, AFTER_MOVE),
    (keys.FencesCancelsByKey, CANCEL_BY_ID, AFTER_CANCEL),
    (keys.FencesCancelsUnderTheId, CANCEL, AFTER_CANCEL),
    (keys.KeepsWithoutFence, KEEP, AFTER_KEEP),
    (keys.ReplacesWithoutFence, ONCE_WITHOUT_KEY, "an older plain 2 after a newer replace"),
    (keys.LeavesWithoutFence, REPLACE, AFTER_REPLACE),
    (keys.LowersFences, KEEP_YOUNG, AFTER_KEEP),
    (keys.TakesFreeFieldsOnly, RELAYED_TWICE, UNHELD),
    (keys.TakesTheKeyAlways, RELAYED, UNHELD),
    (keys.NeverTakesIt, RELAYED_CANCEL, UNHELD),
    (keys.FreesWhoeverHolds, RELAYED, UNHELD),
    (keys.HoldsWhereverItIs, RELAYED, NOTHING),
]


@cache
def searched(name: str):
    return search(SCENARIOS[name], Keyed())


@pytest.mark.parametrize("name", SCENARIOS)
def test_whatever_the_network_does_one_entry_at_most_waits_under_a_key_and_calls_are_in_order(name):
    assert searched(name).way == []


def test_the_searches_see_every_answer_and_refusal():
    answers = set().union(*(searched(name).answers for name in SCENARIOS))
    assert answers | {"join"} == {
        *("held", "kept", "conflict", "done", "in_flight", "not_found"),
        *REFUSALS,
    }
    assert sum(searched(name).worlds for name in SCENARIOS) > 30_000


@pytest.mark.parametrize(
    ("protocol", "scenario", "wrong"), WRONG, ids=lambda it: getattr(it, "__name__", None)
)
def test_a_weaker_protocol_is_found_out(protocol, scenario, wrong):
    assert search(scenario, protocol(), until=wrong).wrong.startswith(wrong)


def test_every_weaker_protocol_is_among_them():
    weaker = {each for each in vars(keys).values() if _is_weaker(each)}
    assert weaker == {protocol for protocol, _, _ in WRONG}


def _is_weaker(each) -> bool:
    return isinstance(each, type) and issubclass(each, Keyed) and each is not Keyed


def test_the_way_to_two_under_one_key_is_a_key_that_what_is_leased_keeps():
    assert search(RELAYED_TWICE, keys.TakesFreeFieldsOnly()).way == [
        "A sends reject",
        "2 is claimed",
        "reject 0 arrives: held, its reply is lost",
        "0 is claimed",
        "2 comes back",
    ]


def test_a_fence_that_is_lowered_lets_pass_what_was_sent_before_something_was_kept():
    assert search(KEEP_YOUNG, keys.LowersFences()).way[-3:] == [
        "keep 2 arrives: kept, its reply is lost",
        "0 is handed over",
        "replace 1 arrives: held, its reply is lost",
    ]
