"""The node to connect to, by URL, announcements and mapping; and the errors for wrong values."""

import time

import pytest

from celery_delayq.contrib.care.doctor import examine
from celery_delayq.contrib.cluster import SlotQuery, Told, nodes_of
from celery_delayq.core import clock
from celery_delayq.core.servers.endpoint import Endpoint
from celery_delayq.errors import InvalidSetting, StoreError, StoreUnavailable
from tests.cluster.conftest import FAR, TIMEOUT
from tests.support.certificates import program_with_tls
from tests.support.clusters import ClusterServers
from tests.support.ports import free_port
from tests.support.slow_link import SlowLink
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.libraries


ASKED = ("asked", 7000)


@pytest.mark.parametrize(
    ("url", "nodes"),
    [
        ("redis+cluster://a", ["redis://a"]),
        ("redis+cluster://a:1;b:2/0", ["redis://a:1/0", "redis://b:2"]),
        ("rediss+cluster://u:p@a/0; b:2;", ["rediss://u:p@a/0", "rediss://b:2"]),
        (
            "redis+cluster://u:p@a:1;redis+cluster://b:2/0?ssl_ca_certs=/ca",
            ["redis://u:p@a:1/0?ssl_ca_certs=/ca", "redis://b:2"],
        ),
        ("redis+cluster://[::1]:1;[::2]:2/0", ["redis://[::1]:1/0", "redis://[::2]:2"]),
        ("valkeys+cluster://a:1;b:2/0", ["valkeys://a:1/0", "valkeys://b:2"]),
    ],
)
def test_a_url_names_its_nodes(url, nodes):
    assert nodes_of(url) == nodes


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ([b"10.0.0.1", 1, b"id"], ("10.0.0.1", 1)),
        ([b"node.example", 1, b"id", []], ("node.example", 1)),
        # The host of the request.
        ([None, 1, b"id", [b"ip", b"10.0.0.1"]], ("asked", 1)),
        ([b"", 1, b"id"], ("asked", 1)),
        # It is configured to announce a host name, but has none.
        ([b"?", 1, b"id", [b"ip", b"10.0.0.1"]], ("10.0.0.1", 1)),
        ([b"?", 1, b"id", []], ("asked", 1)),
    ],
)
def test_a_node_is_where_it_announces_or_where_one_has_asked(server, address):
    query = SlotQuery(5, Endpoint(), lambda announced: announced)

    assert query._read([[0, 10, server]], ASKED) == Told(address, (address,), ((0, 10, address),))


def test_replicas_of_the_slot_come_before_other_masters():
    query = SlotQuery(5, Endpoint(), lambda announced: (announced[0].upper(), announced[1]))
    ranges = [[6, 9, [b"a", 1, b""], [b"b", 1, b""]], [0, 5, [b"c", 1, b""], [b"d", 1, b""]]]

    told = query._read(ranges, ASKED)

    assert (told.owner, told.others) == (("C", 1), (("D", 1), ("C", 1), ("A", 1)))
    assert [told.owner_of(slot) for slot in (0, 5, 6, 9, 10)] == [
        ("C", 1), ("C", 1), ("A", 1), ("A", 1), None,
    ]  # fmt: skip
    assert query._read(ranges[:1], ASKED) is None


def test_an_address_is_mapped_whether_it_is_asked_for_or_moved_to(cluster, make_house):
    announced = {node.port: node for node in cluster.masters}
    with (
        SlowLink(cluster.masters[0].port, 0.0) as one,
        SlowLink(cluster.masters[1].port, 0.0) as two,
        SlowLink(cluster.masters[2].port, 0.0) as three,
    ):
        links = dict(zip(announced, (one, two, three), strict=True))
        house = make_house(
            cluster.url(),
            delayq_transport_options={
                "address_map": {
                    f"127.0.0.1:{port}": f"localhost:{link.port}" for port, link in links.items()
                }
            },
        )

        house.task.apply_async(task_id="a", delayq_at=FAR)
        before = house.delayq.services.endpoint._found.address
        old = cluster.owner
        new = cluster.move()
        house.task.apply_async(task_id="b", delayq_at=FAR)
        after = house.delayq.services.endpoint._found.address

    assert before == ("localhost", links[old.port].port)
    assert after == ("localhost", links[new.port].port)


def test_an_address_that_cannot_be_reached_is_named_with_the_setting(
    cluster, make_house, monkeypatch
):
    # The call's time is over when it pauses for the first time.
    pauses = []
    monkeypatch.setattr(clock, "sleep", pauses.append)
    monkeypatch.setattr(clock, "monotonic", lambda: time.monotonic() + 2 * TIMEOUT * len(pauses))
    nobody = f"localhost:{free_port()}"
    house = make_house(
        cluster.url(),
        delayq_transport_options={
            "address_map": {f"127.0.0.1:{node.port}": nobody for node in cluster.masters}
        },
    )

    with pytest.raises(
        StoreUnavailable, match="set address_map in delayq_transport_options: "
    ) as e:
        house.task.apply_async(delayq_at=FAR)

    assert nobody in str(e.value)


@pytest.fixture(scope="module")
def tls_cluster(certificates):
    with (
        program_with_tls() as binary,
        ClusterServers(1, binary=binary, tls=certificates) as cluster,
    ):
        yield cluster, f"{certificates}/ca.crt"


def test_over_tls_the_name_that_a_node_announces_is_checked(tls_cluster, make_house):
    cluster, authority = tls_cluster
    url = cluster.url().replace("redis+", "rediss+")
    said = {"ssl": {"ssl_ca_certs": authority}}
    # Another name of the same address, which the certificate does not have.
    mapped = {f"127.0.0.1:{node.port}": f"127.1:{node.port}" for node in cluster.masters}
    trusting = make_house(url, delayq_transport_options=said, delayq_timeout=PATIENCE)
    elsewhere = make_house(
        url, delayq_transport_options={**said, "address_map": mapped}, delayq_timeout=PATIENCE
    )

    trusting.task.apply_async(task_id="a", delayq_at=FAR)

    assert trusting.delayq.get("a") is not None
    with pytest.raises(StoreUnavailable, match=r"(?i)127\.1.*certificate verify failed"):
        elsewhere.task.apply_async(delayq_at=FAR)


# The error for a wrong value is one sentence that names the setting and the remedy.


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
