"""The slot moves, or its owner fails: a call succeeds elsewhere, or raises the true reason."""

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from redis.exceptions import ClusterDownError, MovedError

from celery_delayq.contrib.cluster import SlotOwner, SlotQuery, Told
from celery_delayq.core.servers.endpoint import Endpoint
from celery_delayq.errors import StoreUnavailable
from tests.cluster.conftest import calm, let_a_replica_take_over, listed, put
from tests.support.clusters import STORE, ClusterServers
from tests.support.missing import missing
from tests.support.ports import free_port
from tests.support.redis_programs import redis_binaries
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.libraries

A_MOMENT = 0.5  # seconds: longer than several pauses between requests


# MOVED.


def test_a_call_follows_a_node_that_names_no_host(cluster, house):
    for node in cluster.masters:
        node.client().config_set("cluster-preferred-endpoint-type", "unknown-endpoint")
    try:
        put(house, "before")
        cluster.move()

        put(house, "after")
    finally:
        for node in cluster.masters:
            node.client().config_set("cluster-preferred-endpoint-type", "ip")

    assert listed(house) == {"before", "after"}


def test_a_scanner_is_woken_at_the_node_that_has_the_slot_now(cluster, make_house):
    house = make_house(cluster.url(), delayq_safety_interval=60)
    house.start().wait_for_first_scan(20)
    house.task.apply_async(task_id="a", delayq_at=time.time())
    house.take()
    new = cluster.move()

    house.task.apply_async(task_id="b", delayq_at=time.time() + 0.2)

    assert [one.headers["id"] for one in house.take()] == ["b"]
    # Any node passes on published messages; but the old one may leave the Cluster.
    eventually(lambda: new.client().client_list(_type="pubsub"))


@pytest.mark.parametrize(
    ("named", "address"),
    [("h:2", ("h", 2)), ("::1:2", ("::1", 2)), (":2", ("asked", 2)), ("?:2", None)],
)
def test_a_moved_error_names_the_slot_s_new_node(named, address):
    owner, asked = SlotOwner(STORE, (), Endpoint()), SimpleNamespace(host="asked", port=1)
    owner.moved(("asked", 1))

    owner.refused(asked, MovedError(f"5 {named}"))

    assert owner._found.address == address


def test_two_nodes_that_name_each_other_are_asked_after_a_pause():
    owner = SlotOwner(STORE, (("a", 1),), Endpoint())

    assert [owner.again_after(MovedError("1 b:1"), turn) for turn in (0, 1, 2)] == [0.0, 0.2, 0.2]


# TRYAGAIN, and ASK.


def test_a_call_waits_while_the_slot_is_being_moved(cluster, house):
    put(house, "before")
    owner, to = cluster.begin_move(keys=2)

    with ThreadPoolExecutor() as threads:
        call = threads.submit(put, house, "after")
        is_refused = _refusals(owner)
        eventually(lambda: _refusals(owner) > is_refused)
        assert not call.done()
        cluster.end_move(owner, to)
        call.result(30)

    assert listed(house) == {"before", "after"}


def _refusals(node) -> int:
    """The number of commands that a node has refused."""
    return sum(one["count"] for one in node.client().info("errorstats").values())


REFUSED = {
    "schedule failed: {}: TRYAGAIN": (2, lambda house: put(house, "after")),
    # All keys have moved, the slot has not.
    "read failed: {}: ASK": (1000, listed),
}


@pytest.mark.parametrize("said", REFUSED)
def test_a_call_says_when_the_slot_is_moved_for_longer_than_it_has(
    cluster, house, ends_when_refused, said
):
    keys, step = REFUSED[said]
    put(house, "before")
    owner, to = cluster.begin_move(keys=keys)
    try:
        with ends_when_refused(), pytest.raises(StoreUnavailable) as caught:
            step(house)
    finally:
        cluster.end_move(owner, to)

    assert str(caught.value).startswith(said.format("refused until the call's time was over"))
    assert not caught.value.may_have_run
    assert listed(house) == {"before"}


# CLUSTERDOWN.


def test_a_call_waits_while_no_node_serves_the_slot(cluster, house):
    put(house, "before")
    owner = cluster.owner
    for node in cluster.masters:
        node.ask("DELSLOTS", STORE)
    timer = threading.Timer(A_MOMENT, lambda: owner.ask("ADDSLOTS", STORE))
    timer.start()
    try:
        assert house.delayq.get("before") is not None
    finally:
        timer.join()
        eventually(cluster.is_whole)


def test_another_node_is_asked_who_serves_the_slot(cluster, house):
    put(house, "before")
    server, owner = house.delayq.services.endpoint, cluster.owner
    server.moved(cluster.others()[0].address)

    server.refused(None, ClusterDownError("The cluster is down"))
    server.find_master(time.monotonic() + PATIENCE)

    assert server._found.address == owner.address


def test_each_question_begins_at_another_node(monkeypatch):
    asked = []
    monkeypatch.setattr(SlotQuery, "told", lambda _, nodes, *__: iter(asked.append(nodes) or ()))
    owner = SlotOwner(STORE, (("a", 1), ("b", 1)), Endpoint())

    for _ in range(3):
        assert list(owner._named(0.0, [])) == []

    assert [nodes[0] for nodes in asked] == [("a", 1), ("b", 1), ("a", 1)]


def test_a_node_that_refuses_ends_no_call_that_is_under_way(redis_server):
    owner = SlotOwner(STORE, (("127.0.0.1", redis_server.port),), Endpoint())
    owner.doubt()

    owner.find_master(time.monotonic() + PATIENCE)  # it belongs to no Cluster

    assert owner._found.address is None


# A link that breaks or is silent.


@pytest.fixture
def fragile():
    """A Cluster for this test alone, with a replica of the store's owner."""
    with ClusterServers(replica=True) as cluster:
        yield calm(cluster)


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_a_replica_takes_over_and_a_call_succeeds(fragile, make_house, fault, hurried):
    owner, replica = fragile.owner, fragile.nodes[-1]
    # The URL names the owner alone: the process has learned the others from it.
    house = make_house(fragile.url(fragile.nodes.index(owner)), delayq_timeout=20)
    house.start().wait_for_first_scan(20)
    put(house, "before")
    assert owner.client().wait(1, 1000 * PATIENCE) == 1

    hurried()
    getattr(owner, fault)()
    let_a_replica_take_over(fragile, owner)
    put(house, "after")
    house.due_now(task_id="due")

    assert [one.headers["id"] for one in house.take()] == ["due"]
    assert listed(house) == {"before", "after"}
    assert house.delayq.services.endpoint._found.address == replica.address
    if fault == "pause":
        owner.resume()


def test_a_node_of_the_url_that_is_away_is_passed_over(cluster, make_house):
    nobody = free_port()
    url = cluster.url(0).replace("://", f"://127.0.0.1:{nobody};")

    for number in range(3):  # each starts at a different one
        put(make_house(url), str(number))

    assert listed(make_house(url)) == {"0", "1", "2"}


def test_a_node_that_cannot_be_reached_is_named(make_house):
    nobody = free_port()
    house = make_house(f"redis+cluster://127.0.0.1:{nobody}/0", delayq_timeout=A_MOMENT)

    with pytest.raises(StoreUnavailable) as caught:
        put(house, "a")

    assert str(caught.value).startswith(
        f"schedule failed: no node tells who serves slot {STORE} of redis+cluster://127.0.0.1:"
        f"{nobody}/0: 127.0.0.1:{nobody}: Error "
    )


# A migration that moves the slot at once, as in Redis 8.4 and Valkey 9.


@pytest.mark.thorough
def test_an_atomic_migration_stops_no_call(make_house):
    found = [path for name, path in redis_binaries() if name.startswith("valkey-9.")]
    binary = found[0] if found else missing("Valkey 9")
    with ClusterServers(binary=binary) as cluster:
        house = make_house(cluster.url())
        owner, to = cluster.owner, cluster.others()[0]
        put(house, "before")

        owner.ask("MIGRATESLOTS", "SLOTSRANGE", STORE, STORE, "NODE", to.id)
        calls = 0
        while cluster.owner is not to:
            calls += 1
            put(house, str(calls))
        put(house, "after")

        assert listed(house) == {"before", "after", *map(str, range(1, calls + 1))}


# All shards of a process know the facts of a Cluster that one of them learns.


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
