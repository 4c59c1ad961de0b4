"""All shards of a process know the facts of a Cluster that one of them learns."""

import math
from types import SimpleNamespace

import pytest
from redis.exceptions import MovedError

from celery_delayq.contrib.cluster import SlotOwner
from celery_delayq.contrib.cluster.slots import SlotQuery, Told
from celery_delayq.core.servers.endpoint import Endpoint
from tests.support.clusters import STORE

pytestmark = pytest.mark.libraries


@pytest.fixture
def two(monkeypatch):
    """The owners of two slots, of which a node says that both have moved to it."""
    there = Told(("new", 1), (), ((0, 16383, ("new", 1)),))
    monkeypatch.setattr(SlotQuery, "told", lambda *_: iter([there]))
    one = SlotOwner(STORE, (("a", 1),), Endpoint())
    other = one.at(STORE + 1)
    for each in (one, other):
        each.moved(("old", 1))
    return one, other


def test_after_moved_the_next_call_of_another_slot_asks_for_all(two):
    one, other = two

    one.refused(SimpleNamespace(host="old", port=1), MovedError(f"{STORE} new:1"))
    one.find_master(math.inf)  # it knows its own
    assert (one.node, other.node) == (("new", 1), ("old", 1))

    other.find_master(math.inf)
    assert other.node == ("new", 1)


def test_a_slot_learns_from_the_answer_to_another(two):
    one, other = two

    one.doubt()
    one.find_master(math.inf)

    assert (one.node, other.node) == (("new", 1), ("new", 1))


def test_a_broken_link_makes_all_slots_of_that_node_forget_it(two):
    one, other = two
    third = one.at(STORE + 2)
    third.moved(("third", 1))

    one.lost(SimpleNamespace(host="old", port=1))

    assert (one.node, other.node, third.node) == (None, None, ("third", 1))
    # A scanner listens at any node that is there.
    assert (one.known().node, third.known()) == (("third", 1), third)
