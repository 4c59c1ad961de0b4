"""From one slot of a Cluster to six shards over its nodes, and back."""

import contextlib

import pytest

from celery_delayq.contrib.care.migration import Resharding
from celery_delayq.core.store.keys import Keys
from celery_delayq.errors import StoreError
from tests.cluster.conftest import FAR, listed

IDS = {f"id-{number}" for number in range(30)}


def reshard(house, cluster, shards):
    node = cluster.owner_of(Keys("delayq").slot)
    node.client().hset(Keys("delayq")["meta"], "timeout", 1)
    with contextlib.closing(Resharding(house.delayq.services)) as one:
        assert one.run(shards)
        assert one.estimate(shards).entries == len(IDS)


def records(cluster, shards):
    """How many records each node has."""
    found = {}
    for one in (Keys("delayq", number, shards) for number in range(shards)):
        node = cluster.owner_of(one.slot)
        found[node] = found.get(node, 0) + node.client().hlen(one["records"])
    return found


def test_a_store_is_spread_over_the_nodes_and_comes_back(make_house, cluster):
    one, six = (make_house(cluster.url(), delayq_shards=shards) for shards in (1, 6))
    for task_id in IDS:
        one.task.apply_async(task_id=task_id, delayq_at=FAR, delayq_tags=["all"])

    reshard(one, cluster, 6)
    assert listed(six) == IDS
    assert all(records(cluster, 6).values())
    assert len(records(cluster, 6)) == 3

    reshard(six, cluster, 1)
    assert listed(one) == IDS
    assert [*records(cluster, 1).values()] == [len(IDS)]
    assert [*one.delayq.check()] == []


def test_tasks_for_queues_in_the_store_s_slot_stay_there(make_house, cluster):
    prefix = {"global_keyprefix": "{delayq:0}:"}
    house = make_house(cluster.url(), cluster.owner.url(), broker_transport_options=prefix)
    house.task.apply_async(task_id="a", delayq_at=FAR)
    with contextlib.closing(Resharding(house.delayq.services)) as one:
        with pytest.raises(StoreError, match="queues in the slot of a single shard; use dump and"):
            one.run(6)
        assert one.under_way() is None
