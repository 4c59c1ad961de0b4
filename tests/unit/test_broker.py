"""A broker URL on Redis Sentinel is read as kombu reads it, so workers reach the same master."""

from types import SimpleNamespace

import pytest
from kombu import Connection
from kombu.transport import redis as kombu_redis

from celery_delayq.core.handover.publishers import bounded, connect
from celery_delayq.core.message.broker import Broker, store_endpoint
from celery_delayq.core.servers.endpoint import Endpoint
from celery_delayq.errors import InvalidSetting

pytestmark = pytest.mark.libraries

NAMES = "delayq_url", "delayq_transport_options"
URLS = "sentinel://user:pass@a/3;sentinel://b:1"
OPTIONS = {"master_name": "mymaster"}


def broker(url=URLS, options=OPTIONS, **said):
    return Broker.of(lambda: Connection(url, transport_options=options, **said), url)


def test_a_broker_url_has_sentinels_login_and_database():
    found = broker()

    assert found.endpoint.name == "mymaster"
    assert found.endpoint.sentinels == (Endpoint("a", 26379), Endpoint("b", 1))
    assert found.endpoint.server == Endpoint(db=3, username="user", password="pass")
    # It is no list of brokers.
    assert (found.failover, found.transport) == (False, "redis")
    assert (found.kind, found.hosts) == ("redis, database 3", "a:26379, b:1 (master mymaster)")


def test_one_sentinel_is_a_group_as_well():
    assert broker("sentinel://a/2").endpoint.sentinels == (Endpoint("a", 26379),)


@pytest.mark.parametrize(
    ("url", "places"),
    [
        ("sentinel://a:1/0;", ["a:1"]),
        ("sentinel://a:1/0;;sentinel://b", ["a:1", "b:26379"]),
        ("sentinel://a:1/0 ;sentinel://b:2/0 ; ", ["a:1", "b:2"]),
        ("sentinel://a:1;b:2/0", ["a:1"]),
        ("SENTINEL://a;Sentinel://b", ["a:26379", "b:26379"]),
    ],
)
def test_the_sentinels_are_those_that_kombu_would_ask(url, places):
    found = broker(url)
    assert [one.where for one in found.endpoint.sentinels] == places == asked_by_kombu(url)
    assert not found.failover
    assert found.hosts == f"{', '.join(places)} (master mymaster)"


def test_another_broker_behind_sentinels_is_asked_for_no_master():
    url = "sentinel://a:1;redis://b:2"
    found = broker(url)
    assert [one.where for one in found.endpoint.sentinels] == ["a:1"] == asked_by_kombu(url)
    assert (found.failover, found.hosts) == (True, "a:1, b:2 (master mymaster)")


def asked_by_kombu(url):
    asked = []

    def sentinel(places, **_options):
        asked.extend(f"{host}:{port}" for host, port in places)
        return SimpleNamespace(master_for=lambda *_, **__: SimpleNamespace(connection_pool=None))

    client = Connection(url, transport_options=OPTIONS)
    channel = SimpleNamespace(
        connection=SimpleNamespace(client=client, default_port=26379),
        _connparams=lambda _asynchronous: {"host": "unread", "port": 0},
        **OPTIONS,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kombu_redis.sentinel, "Sentinel", sentinel)
        kombu_redis.SentinelChannel._sentinel_managed_pool(channel)
    return asked


PLACES = {
    "sentinel://:secret@a; sentinel://:secret@b": "sentinel://b",
    "sentinel://:secret@a;sentinel://:sec/ret@b:1": "sentinel://a;sentinel://b:1",
    "amqp://:secret@a;amqp://:secret@b:x": "amqp://b:x",
}


@pytest.mark.parametrize(("url", "shown"), PLACES.items())
def test_a_url_of_which_kombu_reads_no_place_is_refused(url, shown):
    expected = "a URL whose port is a number, with the special characters of a password as %XX"
    if "; " in url:
        expected = "URLs parted by ';' alone: of one behind a blank, kombu reads no host"
    with pytest.raises(InvalidSetting) as caught:
        broker(url)
    assert str(caught.value) == f"broker_url is {shown!r}; expected {expected}"
    assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize(
    "url", [f"{URLS};", f" {URLS}", "sentinel://user:pass@a/3; ; sentinel://b:1 "]
)
def test_blanks_and_nothing_between_the_urls_of_a_store_do_not_matter(url):
    assert store_endpoint(url, OPTIONS, broker("memory://"), NAMES, [0]) == broker().endpoint


def test_a_redis_url_s_last_semicolon_is_no_other_store():
    assert store_endpoint("redis://a; ", None, broker("memory://"), NAMES, [0]) == Endpoint("a")
    assert broker("redis://a;", {}).failover  # for a broker, kombu then uses this machine


def test_the_options_of_a_broker_are_not_shown():
    asked = {"password": "s3cret"}
    assert "s3cret" not in repr(broker(options={**OPTIONS, "sentinel_kwargs": asked}))


def test_sentinels_have_options_of_their_own():
    tls = {"ssl": True, "ssl_ca_certs": "/ca"}
    asked = {"username": "u", "password": "p", "socket_timeout": 0.3, **tls}
    options = {**OPTIONS, "sentinel_kwargs": asked, "min_other_sentinels": 2}
    found = broker(options=options, ssl={"ssl_ca_certs": "/other"}).endpoint

    for one in found.sentinels:
        assert (one.username, one.password) == ("u", "p")
        assert one.tls["ssl_ca_certs"] == "/ca"
        assert one.tls["ssl_check_hostname"]
    assert (found.ask, found.others) == (0.3, 2)
    assert found.server.tls["ssl_ca_certs"] == "/other"


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "['master_name']"),
        ({"master_name": ""}, "['master_name']"),
        ({"master_name": b"m"}, "['master_name']"),
        ({**OPTIONS, "sentinel_kwargs": "secret"}, "['sentinel_kwargs']"),
    ],
)
def test_options_that_leave_out_what_it_takes_are_named(options, name):
    with pytest.raises(InvalidSetting) as caught:
        broker(options=options)
    assert caught.value.name == f"broker_transport_options{name}"
    assert "secret" not in str(caught.value)


def test_a_store_of_its_own_takes_what_a_broker_takes_and_its_tls():
    options = {**OPTIONS, "ssl": {"ssl_ca_certs": "/ca"}}
    found = store_endpoint(URLS, options, broker("memory://"), NAMES, [0])
    assert found.same_database(broker(ssl={"ssl_ca_certs": "/ca"}).endpoint)
    assert found.server.tls["ssl_ca_certs"] == "/ca"


def test_the_hand_over_asks_sentinels_once_and_not_for_long():
    asked = {"password": "p"}
    connection = Connection(URLS, transport_options={**OPTIONS, "sentinel_kwargs": asked})

    options = bounded(connection, 7.0, 2.0).transport_options

    assert options["socket_timeout"] == 7.0
    assert options["sentinel_kwargs"]["password"] == "p"
    assert options["sentinel_kwargs"]["socket_timeout"] == 0.5
    assert options["sentinel_kwargs"]["retry"]._retries == 0
    assert connection.transport_options["sentinel_kwargs"] == asked


def test_a_failed_connect_leaves_it_with_the_login_of_the_first_sentinel(monkeypatch):
    connection, tried = bounded(Connection(URLS, transport_options=OPTIONS), 0.2, 0.2), []

    def fail():
        tried.append(connection.password)
        raise ZeroDivisionError("division")

    monkeypatch.setattr(connection, "_connection_factory", fail)
    recoverable = (type(connection), "recoverable_connection_errors", (ZeroDivisionError,))
    monkeypatch.setattr(*recoverable, raising=False)
    with pytest.raises(Exception, match="division"):
        connect(connection, 1.0)

    assert tried == ["pass"]
    assert (connection.password, connection.hostname) == ("pass", "a")


@pytest.mark.parametrize("said", [{"ssl": True}, {"max_connections": 20}])
def test_a_word_that_is_for_a_pool_is_left_to_kombu(said):
    ssl = {"ssl_ca_certs": "/ca", **said}
    assert broker("rediss://a/0", {}, ssl=ssl).endpoint.tls["ssl_ca_certs"] == "/ca"
    assert broker(ssl=ssl).endpoint.server.tls["ssl_ca_certs"] == "/ca"
