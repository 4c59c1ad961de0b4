"""A new entry meets others: the decisions that the documentation's table leaves out."""

import pytest

from tests.store.who_stays import DUE, POLICIES, outcome

pytestmark = pytest.mark.core


@pytest.mark.parametrize("policy", POLICIES)
def test_the_entry_with_its_id_decides_before_the_one_with_its_key(policy):
    for state in ("unreadable", "leased"):
        alone = outcome(policy, DUE, own=state)
        for holder in ("waiting", "busy"):
            assert outcome(policy, DUE, own=state, holder=holder) == alone


@pytest.mark.parametrize("policy", POLICIES)
def test_a_dead_letter_with_its_id_stays_out_of_the_decision_under_its_key(policy):
    beside = outcome(policy, DUE, own="dead", holder="waiting")
    alone = outcome(policy, DUE, holder="waiting")
    assert beside == (("dead", None) if policy == "reject" else alone)


@pytest.mark.parametrize("policy", ["replace", "debounce", "earliest", "latest"])
def test_a_new_entry_meets_the_one_behind_a_waiting_holder_instead_of_the_holder(policy):
    assert outcome(policy, DUE - 1, holder="waiting", behind="waiting") == outcome(
        policy, DUE - 1, holder="busy", behind="waiting"
    )


def test_of_two_that_it_meets_the_one_with_its_key_is_told():
    assert outcome("keep", DUE, own="waiting", holder="waiting") == ("kept", "holder")
