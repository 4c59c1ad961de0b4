"""The error for a wrong value is one sentence that names the setting and the remedy."""

import pytest

from celery_delayq.contrib.care.doctor import examine
from celery_delayq.errors import InvalidSetting, StoreError
from tests.cluster.conftest import FAR

pytestmark = pytest.mark.libraries

NOT_SERVED = (
    "this node of a Redis Cluster does not serve the store's keys; let delayq_url name the "
    "Cluster: redis+cluster:// or rediss+cluster:// in place of redis:// or rediss://"
)
NO_DATABASE = {
    f"schedule failed: {why}; let the URL name a database that this Redis has, such as 0"
    for why in ("SELECT is not allowed in cluster mode", "DB index is out of range")  # Valkey 9
}


def refusal(house, kind=StoreError) -> str:
    with pytest.raises(kind) as caught:
        house.task.apply_async(delayq_at=FAR)
    return str(caught.value)


# A node as a plain Redis.


def test_the_node_that_serves_the_slot_is_taken_as_a_plain_redis(cluster, make_house):
    house = make_house(cluster.owner.url())

    house.due_now(task_id="a")

    assert house.delayq.get("a") is not None
    assert house.relay_once() == 1
    assert house.ids() == ["a"]


def test_another_node_is_refused_and_the_scheme_is_named(cluster, make_house):
    for node in cluster.others():
        house = make_house(node.url())
        assert refusal(house) == f"schedule failed: {NOT_SERVED}"
        assert any(NOT_SERVED in line.found for line in examine(house.delayq.services))


def test_a_node_that_the_slot_has_left_is_refused(cluster, make_house):
    house = make_house(cluster.owner.url())
    house.task.apply_async(delayq_at=FAR)

    cluster.move()

    assert refusal(house) == f"schedule failed: {NOT_SERVED}"


# The store and the broker.


def test_the_broker_s_url_cannot_be_a_cluster(make_house):
    house = make_house("redis://localhost", "redis+cluster://:secret@a:1;b:2/0")

    assert refusal(house, InvalidSetting) == (
        "broker_url is 'redis+cluster://a:1;b:2/0'; expected a URL of a transport that kombu has: "
        "Celery's broker cannot be in a Redis Cluster; let delayq_url name the Cluster, and "
        "broker_url another broker"
    )


# The reverse, and databases.


def test_a_plain_redis_is_no_cluster(redis_server, make_house):
    host = f"127.0.0.1:{redis_server.port}"

    assert refusal(make_house(f"redis+cluster://{host}/0")) == (
        f"schedule failed: {host} is no node of a Redis Cluster; let delayq_url be a redis:// or "
        "rediss:// URL, without +cluster"
    )


def test_another_database_is_what_the_server_refuses(cluster, make_house):
    for url in (cluster.url(db=1), cluster.owner.url(db=1)):
        assert refusal(make_house(url)) in NO_DATABASE


def test_a_user_who_may_not_ask_for_slots_is_told_so(cluster, make_house):
    for node in cluster.masters:
        node.client().execute_command(
            *("ACL", "SETUSER", "shop", "on", ">of shop", "~*", "&*", "+@all", "-cluster")
        )

    said = refusal(make_house(cluster.url().replace("://", "://shop:of shop@")))

    assert "permissions to run the 'cluster|slots' command" in said


# Options and other settings.


@pytest.mark.parametrize(
    "said", ["10.0.0.1:1=b:2", {"a:1": "b"}, {"a:x": "b:2"}, {5: "b:2"}, {"a:1": 2}]
)
def test_a_map_that_maps_no_addresses_is_refused(make_house, said):
    house = make_house("redis+cluster://a", delayq_transport_options={"address_map": said})

    assert refusal(house, InvalidSetting) == (
        f"delayq_transport_options['address_map'] is {said!r}; expected a mapping from addresses "
        "that nodes announce to addresses that this process can reach, such as "
        "{'10.0.0.5:6379': 'redis.example.com:7001'}"
    )


def test_a_cluster_of_valkeys_is_shown_as_written(make_house):
    house = make_house("valkeys+cluster://:secret@a:1;b/0")
    server = house.delayq.services.endpoint
    assert (server.url, server.server.tls is None) == ("valkeys+cluster://a:1;b:6379/0", False)


@pytest.mark.parametrize("url", ["redis+cluster://a:1;b:x/0", "redis+cluster://a:x;b:1/0"])
def test_a_port_that_is_no_number_is_refused_without_the_password(make_house, url):
    house = make_house(url.replace("://", "://u:secret@"))

    sentence = refusal(house, InvalidSetting)

    assert sentence.startswith(f"delayq_url is '{url}'; expected a URL ")
    assert "secret" not in sentence
