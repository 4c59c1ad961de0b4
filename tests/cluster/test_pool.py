"""One pool for the nodes of a Cluster: a shard takes connections to its own node alone."""

import time

import pytest

from celery_delayq.core.servers.pool import Pool


class Place:
    """A server at one of two nodes, and its connections."""

    may_move = True

    def __init__(self, host):
        self.host = host

    def connection(self, _timeout):
        return Link(self.host)

    def is_current(self, link):
        return link.host == self.host

    def is_replaced(self, link):
        return link.host != self.host

    def is_shared(self, _link):
        return True


class Link:
    def __init__(self, host):
        self.host, self.is_open = host, True

    def connect(self):
        """Nothing is there to connect to."""

    def disconnect(self):
        self.is_open = False

    def can_read(self):
        return False


@pytest.fixture
def pools():
    one = Pool(Place("a"), most=2)
    return one, one.at(Place("b"))


def take(pool):
    return pool.take(time.monotonic() + 30)


def test_a_shard_takes_connections_to_its_own_node_and_leaves_the_others(pools):
    a, b = (take(one) for one in pools)
    for pool, link in zip(pools, (a, b), strict=True):
        pool.give(link)

    assert [take(one) for one in pools] == [a, b]


def test_an_idle_connection_to_another_node_makes_room(pools):
    here, there = pools
    links = [take(here), take(here)]
    for link in links:
        here.give(link)

    assert take(there).host == "b"
    assert [one.is_open for one in links].count(False) == 1


def test_an_answer_of_moved_closes_no_connection_that_other_shards_can_use(pools):
    here, there = pools
    link = take(here)

    there.give(link)  # its slot has left this node

    assert link.is_open
    assert take(here) is link


def test_a_connection_to_another_node_does_not_stay_idle_for_ever(pools, limits):
    here, there = pools
    link = take(here)
    here.give(link)
    limits(idle_store_s=0.0)

    take(there)

    assert not link.is_open
