"""One or six shards over three masters: each at its own node, one link a node."""

import time
from contextlib import ExitStack

import pytest

from celery_delayq.contrib.care.doctor import examine
from celery_delayq.core.servers.endpoint import NAME
from celery_delayq.core.store.keys import shard_of
from celery_delayq.errors import StoreUnavailable
from tests.cluster.conftest import (
    FAR,
    calm,
    let_a_replica_take_over,
    listed,
    put,
    questions,
)
from tests.support.children import in_child
from tests.support.clusters import STORE, ClusterServers
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.libraries


SHARDS = 6


@pytest.fixture
def house(cluster, make_house):
    return make_house(cluster.url(), delayq_shards=SHARDS)


@pytest.fixture
def fragile():
    """A Cluster for this test alone, whose other slots are served if one master is away."""
    with ExitStack() as stack:
        yield lambda **asked: calm(
            stack.enter_context(ClusterServers(3, "--cluster-require-full-coverage", "no", **asked))
        )


def id_of(shard: int, word: str = "") -> str:
    """An id whose entry is in this shard."""
    return next(f"{word}{n}" for n in range(1000) if shard_of(f"{word}{n}", SHARDS) == shard)


def ids(word: str = "") -> list[str]:
    return [id_of(shard, word) for shard in range(SHARDS)]


def slots(house) -> list[int]:
    return [one.keys.slot for one in house.delayq.services.scripts]


def put_each(house, word: str = "") -> list[str]:
    """A task in each shard."""
    for task_id in ids(word):
        put(house, task_id)
    return ids(word)


def links(node) -> int:
    """How many connections of the package a node has."""
    return sum(one["name"] == NAME for one in node.client().client_list())


@pytest.mark.parametrize("shards", [1, SHARDS])
def test_each_shard_is_at_its_own_node(cluster, make_house, shards):
    house = make_house(cluster.url(), delayq_shards=shards)
    house.due_now(task_id="due", delayq_tags=["t"])
    put_each(house)

    owners = {cluster.owner_of(slot) for slot in slots(house)}
    assert owners == {one for one in cluster.masters if one.client().dbsize()}
    assert len(owners) == min(shards, len(cluster.masters))
    # The meeting place has a slot of its own, or that of the only shard.
    keys = [cluster.owner_of(one).ask("COUNTKEYSINSLOT", one) for one in {*slots(house), STORE}]
    assert min(keys) > 0
    assert sum(keys) == sum(node.client().dbsize() for node in cluster.masters)
    assert listed(house) == {"due", *ids()}
    assert house.delayq.counts().scheduled == 1 + SHARDS
    assert list(house.delayq.check()) == []


@pytest.mark.parametrize("shards", [1, SHARDS])
def test_a_scanner_delivers_from_each_shard(cluster, make_house, shards):
    house = make_house(cluster.url(), delayq_shards=shards, delayq_safety_interval=60)
    house.start().wait_for_first_scan(20)

    for task_id in ids():
        put(house, task_id, time.time() + 0.2)

    # Each was woken for, whichever node it listens at.
    assert {one.headers["id"] for one in house.take(count=SHARDS)} == set(ids())
    eventually(lambda: house.counts() == (0, 0, 0))  # each leaves once the broker has it


def test_a_process_has_one_link_to_each_node_and_asks_once(cluster, make_house):
    many = 64
    before = questions(cluster)
    house = make_house(cluster.url(), delayq_shards=many)
    for task_id in [str(number) for number in range(200)]:
        put(house, task_id)
    assert house.delayq.counts().scheduled == 200

    assert [links(node) for node in cluster.masters] == [1, 1, 1]
    assert questions(cluster) - before == 1

    house.delayq.app.conf.delayq_safety_interval = 60
    house.start().wait_for_first_scan(20)
    eventually(lambda: len(house.delayq.services.entries.scanners()) == 1)
    # The scanner's own, and one of them on which it listens.
    assert sum(links(node) for node in cluster.masters) <= 3 + 3 + 1


def test_a_forked_child_has_one_pool_of_its_own(house):
    put_each(house)
    connections = [one.connection for one in house.delayq.services.scripts]
    before = {id(one.pool._idle) for one in connections}

    def own():
        pools = {id(one.pool._idle) for one in connections}
        return b"%d %d %d" % (len(pools), len(pools & before), listed(house) == set(ids()))

    assert in_child(own) == b"1 0 1"
    assert listed(house) == set(ids())


def test_the_doctor_reads_each_node_and_names_it(house, cluster):
    put_each(house)

    lines = list(examine(house.delayq.services))

    for name in ("store", "persistence", "memory", "clock", "rights"):
        found = {line.found.split(": ")[0] for line in lines if line.name == name}
        assert found == {f"node 127.0.0.1:{node.port}" for node in cluster.masters}
    assert [line.name for line in lines].count("scanners") == 1
    # No scanner runs, and the suite's servers have no persistence.
    assert {line.name for line in lines if line.level == "error"} <= {"scanners", "persistence"}


@pytest.mark.thorough
def test_the_doctor_names_a_node_that_is_away_and_reads_the_others(fragile, make_house):
    cluster = fragile()
    house = make_house(cluster.url(), delayq_shards=SHARDS)
    put_each(house)
    cluster.owner.kill()

    lines = list(examine(house.delayq.services))

    stores = [line.level for line in lines if line.name == "store"]
    assert sorted(stores) == ["error", "ok", "ok"]
    assert len([line for line in lines if line.name == "clock"]) == 2


def test_a_single_delivery_goes_on_at_the_other_nodes(fragile, make_house):
    cluster = fragile()
    house = make_house(cluster.url(), delayq_shards=SHARDS)
    for task_id in ids():
        put(house, task_id, time.time())
    cluster.owner_of(slots(house)[0]).kill()
    with pytest.raises(StoreUnavailable):
        house.delayq.hand_over()
    house.take(count=4)


def test_health_reads_the_memory_of_each_node(house, cluster):
    put_each(house)
    full = cluster.others()[0].client()
    full.config_set("maxmemory", full.info("memory")["used_memory"])
    try:
        told = [one for one in house.delayq.health() if "maxmemory" in one]
    finally:
        full.config_set("maxmemory", 0)

    assert len(told) == 1


# A slot that moves, and the others.


def test_a_slot_that_has_moved_is_followed_and_the_others_stay(house, cluster):
    put_each(house)
    slot = slots(house)[0]
    before = questions(cluster)
    new = cluster.move(slot)

    put_each(house, "after")

    assert listed(house) == {*ids(), *ids("after")}

    assert cluster.owner_of(slot) is new
    assert [links(node) for node in cluster.masters] == [1, 1, 1]
    own = 4 * len(cluster.masters)  # at most, by `owner_of` and `move` of this test
    assert questions(cluster) - before <= own


def test_while_a_slot_is_being_moved_the_other_shards_go_on(
    cluster, make_house, limits, ends_when_refused
):
    limits(reach_s=1.0)
    house = make_house(cluster.url(), delayq_shards=SHARDS)
    put_each(house)
    house.start().wait_for_first_scan(20)
    slot = slots(house)[0]
    owner, to = cluster.begin_move(2, slot)
    try:
        with ends_when_refused(), pytest.raises(StoreUnavailable, match=r"TRYAGAIN|ASK"):
            put(house, id_of(0, "not"))
        for shard in range(1, SHARDS):
            put(house, id_of(shard, "due"), time.time())
        assert len(house.take(count=SHARDS - 1)) == SHARDS - 1
    finally:
        cluster.end_move(owner, to, slot)

    put(house, id_of(0, "due"), time.time())
    assert [one.headers["id"] for one in house.take()] == [id_of(0, "due")]
    assert listed(house) == set(ids())


# A node that is away, and the others.


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_if_a_node_is_away_the_shards_of_the_others_go_on(
    fragile, make_house, fault, limits, hurried
):
    limits(reach_s=1.0)
    cluster = fragile(replica=3 * (fault == "kill"))
    # The scanner listens at this one, and processes meet there.
    node = cluster.owner
    house = make_house(cluster.url(), delayq_shards=SHARDS, delayq_timeout=10)
    put_each(house)
    there = [n for n, slot in enumerate(slots(house)) if cluster.owner_of(slot) is node]
    others = [n for n in range(SHARDS) if n not in there]
    assert len(there) == 2
    house.start().wait_for_first_scan(20)
    eventually(lambda: len(house.delayq.services.entries.scanners()) == 1)
    for shard in there:
        put(house, id_of(shard, "away"), time.time() + 1)
    if fault == "kill":
        assert _has_replica(node)
        house.delayq.app.conf.delayq_wait_replicas = (1, PATIENCE)
        far = [house.task.s().set(task_id=one).delay_until(FAR) for one in ids("kept")]
        assert [one.replicas for one in far] == [1] * SHARDS  # each at its own node
        assert [bool(house.delayq.cancel(one)) for one in far] == [True] * SHARDS
        house.delayq.app.conf.delayq_wait_replicas = None

    hurried()
    getattr(node, fault)()
    let_a_replica_take_over(cluster, node)
    try:
        early = house.ids()  # on a busy machine, they may have been due before
        for shard in others:
            put(house, id_of(shard, "due"), time.time())
        some = house.take(count=len(others))
    finally:
        if fault == "pause":
            node.resume()
    rest = house.take(count=len(there) - len(early))

    due, away = [id_of(one, "due") for one in others], [id_of(one, "away") for one in there]
    assert sorted([*early, *(one.headers["id"] for one in some + rest)]) == sorted(due + away)
    if fault == "pause":  # no replica could take over meanwhile
        assert {one.headers["id"] for one in some} == set(due)
    assert listed(house) == set(ids())


def test_a_scanner_that_starts_meanwhile_serves_the_others(fragile, make_house, limits, hurried):
    limits(reach_s=1.0)
    cluster = fragile()
    node = cluster.others()[0]  # processes meet at another one
    house = make_house(cluster.url(), delayq_shards=SHARDS)
    others = [n for n, slot in enumerate(slots(house)) if cluster.owner_of(slot) is not node]
    hurried()
    node.pause()
    try:
        for shard in others:
            put(house, id_of(shard), time.time())
        house.start()
        assert len(house.take(count=len(others))) == len(others)
    finally:
        node.resume()


def _has_replica(node) -> bool:
    """Wait until a replica has all changes."""
    with node.client() as client:
        client.set("{delayq:0}-last", "")  # WAIT is about the changes of its connection
        return client.wait(1, 1000 * PATIENCE) == 1


# A reconcile over six shards of a Cluster: each key is looked up, and changed, at its own node.


def test_rows_of_all_shards_agree_with_their_tasks(cluster, make_house):
    house = make_house(cluster.url(), delayq_shards=6, delayq_undo=(60, 1000))

    @house.app.task(name="remind")
    def remind(order):
        """Do nothing."""

    def reconcile(numbers, due=FAR):
        rows = [(f"order:{number}", due, (number,)) for number in numbers]
        options = {"tag": "order", "remove": True, "dry_run": False, "most": 1000}
        report = house.delayq.reconcile(remind, rows, **options)
        return dict(report.counts), report.bulk

    assert reconcile(range(300))[0] == {"scheduled": 300}
    counts, bulk = reconcile(range(100, 400), FAR + 60)
    assert counts == {"changed": 200, "cancelled": 100, "scheduled": 100}
    assert reconcile(range(400), FAR + 60)[0] == {"unchanged": 300, "was_cancelled": 100}
    assert house.delayq.undo_all(bulk).done == 300
    assert reconcile(range(400))[0] == {"unchanged": 300, "changed": 100}
    assert len({*house.delayq.select(tag="order")}) == 400
