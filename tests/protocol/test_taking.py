"""Messages that become entries, searched; and weaker protocols that lose, double or revive them."""

from functools import cache

import pytest

from tests.protocol import taking
from tests.protocol.deliveries import search
from tests.protocol.messages import Scenario
from tests.protocol.taking import CONFLICT, STALE, STORED, TAKEN, Taking

ADOPTED = Scenario(faults=1)
ADOPTED_TWICE = Scenario(calls=2)
MOVED = Scenario(faults=1, cancels=0, moves=1, by_tag=True)
PUT_OFF = Scenario(puts_off=True, faults=1)
PUT_OFF_TWICE = Scenario(puts_off=True, calls=2)
SENT_AGAIN = Scenario(messages=2, faults=0)
SENT_AGAIN_AND_LOST = Scenario(messages=2, faults=1)
TOOL = Scenario(tool=True, calls=2)

SCENARIOS = {
    "adopted": ADOPTED,
    "adopted twice": ADOPTED_TWICE,
    "moved": MOVED,
    "put off": PUT_OFF,
    "put off twice": PUT_OFF_TWICE,
    "sent again": SENT_AGAIN,
}

LOST, TWICE, REVIVED = "lost", "twice, and not flagged", "cancelled, and held again"
RUNS_AGAIN = "runs again, and was put off"

WRONG = [
    (taking.AcksFirst, ADOPTED, LOST),
    (taking.AcksFirst, PUT_OFF, LOST),
    (taking.NoMark, ADOPTED, REVIVED),
    (taking.NoMark, MOVED, TWICE),
    (taking.NoMark, PUT_OFF, RUNS_AGAIN),
    (taking.MarksFirst, ADOPTED, LOST),
    (taking.MarksFirst, PUT_OFF, LOST),
    (taking.MarksAfterwards, ADOPTED, REVIVED),
    (taking.MarksAfterwards, PUT_OFF, RUNS_AGAIN),
    (taking.LooksBefore, ADOPTED, REVIVED),
    (taking.LooksBefore, MOVED, TWICE),
    (taking.LooksBefore, PUT_OFF, REVIVED),
    (taking.CountsNoneAtFirst, ADOPTED, REVIVED),
    (taking.CountsNoneAtFirst, PUT_OFF, TWICE),
    (taking.CountsAllAtFirst, SENT_AGAIN, LOST),
    (taking.ForgetsEarly, ADOPTED, REVIVED),
    (taking.ForgetsEarly, MOVED, TWICE),
    (taking.ForgetsEarly, PUT_OFF, RUNS_AGAIN),
    (taking.GoesItsOwnWay, ADOPTED, TWICE),
    (taking.AsksAnew, ADOPTED, REVIVED),
    (taking.AsksAsIfAgain, SENT_AGAIN, LOST),
    (taking.AcksConflicts, SENT_AGAIN, LOST),
    (taking.RunsWhatWasPutOff, PUT_OFF, RUNS_AGAIN),
    (taking.AdoptsInPlace, TOOL, TWICE),
    (taking.AdoptsInPlace, TOOL, REVIVED),
    (taking.AdoptsInPlace, TOOL, LOST),
]


@cache
def searched(name: str):
    return search(SCENARIOS[name], Taking())


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_message_becomes_one_entry_however_often_it_is_delivered(name):
    assert searched(name).way == []


def test_the_searches_see_every_answer_and_refusal():
    answers = set().union(*(searched(name).answers for name in SCENARIOS))
    assert answers == {STORED, TAKEN, CONFLICT, STALE, "done", "not found"}
    assert sum(searched(name).worlds for name in SCENARIOS) > 30_000


@pytest.mark.parametrize(
    ("protocol", "scenario", "wrong"), WRONG, ids=lambda it: getattr(it, "__name__", None)
)
def test_a_weaker_protocol_is_found_out(protocol, scenario, wrong):
    assert search(scenario, protocol(), until=wrong).wrong == wrong


def test_every_weaker_protocol_is_among_them():
    weaker = {each for each in vars(taking).values() if _is_weaker(each)}
    assert weaker == {protocol for protocol, _, _ in WRONG}


def _is_weaker(each) -> bool:
    return isinstance(each, type) and issubclass(each, Taking) and each is not Taking


@pytest.mark.parametrize("scenario", [ADOPTED, MOVED, PUT_OFF])
def test_where_each_message_has_a_name_of_its_own_any_mark_counts(scenario):
    assert search(scenario, taking.CountsAllAtFirst()).way == []


def test_a_worker_that_hangs_asks_for_what_the_broker_gave_to_another_one():
    assert search(PUT_OFF, taking.CountsNoneAtFirst(), until=TWICE).way == [
        "0 is sent",
        "0 is delivered to A",
        "A runs it",
        "the broker takes 0 back from A",
        "0 is delivered to B, again",
        "B runs it",
        "B asks 0",
        "0 arrives: stored, its reply is lost",
        "A asks 1",
        "handed over",
        "1 arrives: stored, its reply is lost",
    ]


def test_without_a_name_one_that_is_sent_again_and_delivered_again_is_taken_for_the_first():
    """What nobody can tell apart: the same id and time, and a worker that dies with the second."""
    found = search(SENT_AGAIN_AND_LOST, Taking())
    assert found.wrong == LOST
    assert "1 is delivered to A, again" in found.way
