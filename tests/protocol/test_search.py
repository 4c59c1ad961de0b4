"""The protocol, searched exhaustively; and weaker ones, to know that the search can fail."""

import pytest

from tests.protocol import model
from tests.protocol.search import search

WEAKER = [
    (model.PopThenPublish, {"loss", "said handed over, was not"}),
    (model.LookPublishRemove, {"loss", "duplicate without a fault", "cancelled, yet delivered"}),
    (model.WithoutToken, {"loss"}),
    (model.CancelsWhatIsClaimed, {"cancelled, yet delivered"}),
    (model.ReschedulesWhatIsClaimed, {"moved, yet delivered"}),
    (model.ForgetsLeasesThatRanOut, {"cancelled, yet delivered", "duplicate without a mark"}),
    (model.TrustsLeasesThatRanOut, {"cancelled, yet delivered"}),
    (model.ForgetsUnknownPublishes, {"cancelled, yet delivered", "duplicate without a mark"}),
    (model.KeepsLeasesForEver, {"stuck"}),
    (model.TriesOnce, {"stuck"}),
]


def test_no_order_of_events_loses_doubles_or_lies():
    found = search(model.Fenced())
    assert found.ways == {}


def test_the_search_sees_every_answer_and_thousands_of_worlds():
    found = search(model.Fenced())
    answers = {"", "done", "uncertain", "in_flight", "handed_over"}
    assert found.worlds > 2_000
    assert {answer for call, answer in found.answers if call == "cancel"} == answers
    assert {answer for call, answer in found.answers if call == "reschedule"} >= answers


@pytest.mark.parametrize(
    ("protocol", "promises"), WEAKER, ids=lambda it: getattr(it, "__name__", "")
)
def test_a_weaker_protocol_is_found_out(protocol, promises):
    found = search(protocol())
    assert promises <= found.ways.keys(), found.ways


def test_the_way_to_a_loss_is_the_one_that_tokens_are_for():
    way = search(model.WithoutToken()).ways["loss"]
    assert way == [
        "0 claims",
        "0 publishes",
        "lease runs out",
        "reschedule: uncertain",
        "0 acks",
    ]
