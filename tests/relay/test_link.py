"""The link to the broker leaves no connection behind."""

import pytest
from kombu import Connection

from celery_delayq.core.handover.link import Link
from tests.support.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.core, pytest.mark.libraries]


@pytest.fixture
def made():
    """The connections that a link made; references keep the garbage collector from closing them."""
    return []


def link_to(url, made):
    class Kept(Connection):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            made.append(self)

    return Link(lambda: Kept(url), timeout=PATIENCE)


def test_a_link_that_is_closed_has_let_go_of_redis(start_redis, made):
    server = start_redis()
    client = server.client()
    before = client.info("clients")["connected_clients"]
    link = link_to(server.url(), made)
    link.prepare()
    assert client.info("clients")["connected_clients"] > before

    link.close()

    eventually(lambda: client.info("clients")["connected_clients"] == before)


def test_a_link_that_is_closed_has_let_go_of_rabbitmq(rabbitmq_server, made):
    link = link_to(rabbitmq_server.url, made)
    link.prepare()
    transports = [one._connection.transport for one in made if one._connection is not None]
    assert [one.sock.fileno() >= 0 for one in transports] == [True]

    link.close()

    assert [one.sock for one in transports] == [None]
