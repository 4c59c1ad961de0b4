"""The same Cluster as store and broker: one slot by the broker's prefix, and exactly once."""

import time

import pytest

from celery_delayq.contrib.care.doctor import examine
from celery_delayq.errors import InvalidOption, StoreError
from tests.cluster.conftest import FAR, lines_of
from tests.support.clusters import SLOTS
from tests.support.ports import free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.libraries

TAGGED = {"global_keyprefix": "{delayq:0}:"}
NO_BROKER = (
    "this Redis belongs to a Redis Cluster, which can be the store and the broker at once only if "
    "delayq_shards is 1 and global_keyprefix in broker_transport_options begins with the store's "
    "hash tag, as '{delayq:0}:' does; set them, or let broker_url name another broker"
)


@pytest.fixture
def lone_node(start_redis):
    """A Cluster of one node."""
    node = start_redis("--cluster-enabled", "yes")
    node.client().execute_command("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
    eventually(lambda: b"cluster_state:ok" in node.client().execute_command("CLUSTER", "INFO"))
    return node


@pytest.fixture
def make_shop(cluster, make_house):
    """Make a house with a node as its broker: ``make_shop(node, shards=2)``."""

    def make(node, url=None, options=TAGGED, **conf):
        conf = {"broker_transport_options": {**options}, **conf}
        return make_house(url or cluster.url(), node.url(), **conf)

    return make


def queue_of(house) -> str:
    return f"{{delayq:0}}:{house.queue}"


def refusal(house) -> str:
    """Why a scanner is refused, and the doctor says the same."""
    shard_steps = house.relay().steps
    with pytest.raises(StoreError) as caught:
        shard_steps.join()
    why = caught.value.why
    assert why in [found for _, found in lines_of(house, "broker")]
    return why


@pytest.mark.parametrize("store", ["the Cluster", "its node", "another name of it"])
def test_a_task_goes_to_its_queue_in_the_store_s_slot_by_a_script(cluster, make_shop, store):
    owner = cluster.owner
    url = {"its node": owner.url(), "another name of it": f"redis://localhost:{owner.port}/0"}
    house = make_shop(owner, url.get(store), delayq_safety_interval=60)
    assert house.delayq.status().path == "direct"
    house.start().wait_for_first_scan(20)

    house.task.apply_async(task_id="a", delayq_at=time.time() + 0.1)

    eventually(lambda: owner.client().llen(queue_of(house)))
    with house.app.connection_for_read() as connection:
        message = connection.default_channel.basic_get(house.queue, no_ack=True)
    assert message.headers["id"] == "a"
    assert house.counts() == (0, 0, 0)


def test_on_several_masters_the_log_and_the_doctor_warn(cluster, make_shop, caplog):
    house = make_shop(cluster.owner)
    house.relay().steps.join()

    found = (
        "the broker is a node of a Redis Cluster with 3 masters: if the slot of its queues moves, "
        "or this node fails, Celery's workers exit or keep asking the old node"
    )
    assert found in [line.found for line in examine(house.delayq.services)]
    assert f"{found}; use a broker that is not in this Cluster" in caplog.messages


def test_on_one_master_there_is_no_warning(lone_node, make_house, caplog):
    house = make_house(None, lone_node.url(), broker_transport_options=TAGGED)

    house.relay().steps.join()

    assert house.delayq.status().path == "direct"
    assert [level for level, _ in lines_of(house, "broker")] == ["ok"]
    assert not [text for text in caplog.messages if "masters" in text]


def test_a_queue_with_the_name_of_a_key_is_refused(cluster, make_shop):
    house = make_shop(cluster.owner)

    with pytest.raises(InvalidOption, match="queue is 'dead'"):
        house.task.apply_async(delayq_at=FAR, queue="dead")
    assert house.task.apply_async(delayq_at=FAR, queue="new")


# Refused brokers.


def test_a_broker_at_another_node_is_refused_and_the_owner_named(cluster, make_shop):
    other, owner = cluster.others()[0], cluster.owner

    assert refusal(make_shop(other)) == (
        f"the broker {other.url()} is a node of a Redis Cluster that does not serve the store's "
        f"slot; let broker_url name 127.0.0.1:{owner.port}, which does, or use another broker"
    )


def test_the_tag_at_another_redis_is_refused(make_shop, start_redis):
    other = start_redis()

    assert refusal(make_shop(other)) == (
        "global_keyprefix in broker_transport_options has the store's hash tag, but the broker "
        f"{other.url()} does not hold this store; let broker_url name the node of the Cluster that "
        "does, or change the prefix"
    )


@pytest.mark.parametrize("options", [{}, {"global_keyprefix": "{celery}:"}])
def test_without_the_tag_each_node_of_the_cluster_is_refused(cluster, make_shop, options):
    for node in cluster.masters:
        assert refusal(make_shop(node, options=options)) == NO_BROKER


def test_the_tag_with_several_shards_is_refused(cluster, make_shop):
    assert refusal(make_shop(cluster.owner, delayq_shards=3)) == NO_BROKER


def test_a_node_without_the_tag_is_refused_to_the_call_as_well(lone_node, make_house):
    house = make_house(None, lone_node.url())

    with pytest.raises(StoreError) as caught:
        house.task.apply_async(delayq_at=FAR)

    assert str(caught.value) == f"schedule failed: {NO_BROKER}"
    assert lone_node.client().dbsize() == 0
    assert NO_BROKER in [line.found for line in examine(house.delayq.services)]


# Brokers that are not refused.


def two_names(request):
    server = request.getfixturevalue("redis_server")
    return f"redis+socket://{server.socket}", server.url()


def another_redis(request):
    return request.getfixturevalue("cluster").url(), request.getfixturevalue("redis_url")


@pytest.mark.parametrize("urls", [two_names, another_redis])
def test_a_redis_outside_the_cluster_is_not_refused(request, make_house, urls):
    house = make_house(*urls(request))
    house.due_now(task_id="a")

    assert house.delayq.status().path == "relay"
    assert house.relay_once() == 1
    assert house.ids() == ["a"]
    assert [level for level, _ in lines_of(house, "broker")] == ["ok"]


def test_a_broker_that_is_away_keeps_no_scanner_from_the_store(cluster, make_house):
    house = make_house(cluster.url(), f"redis://127.0.0.1:{free_port()}/0")

    house.relay().steps.join()
