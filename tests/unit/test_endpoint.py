"""Where a Redis is: its text, the URL of a broker on Sentinel, and the reports of a new master."""

from types import SimpleNamespace

import pytest
import redis
from kombu import Connection
from kombu.transport import redis as kombu_redis

from celery_delayq.contrib.moving import KnownMaster, MasterCache
from celery_delayq.contrib.sentinel import SentinelGroup
from celery_delayq.core.handover.publishers import bounded, connect
from celery_delayq.core.message.broker import Broker, store_endpoint
from celery_delayq.core.servers.endpoint import Endpoint
from celery_delayq.errors import InvalidSetting

pytestmark = pytest.mark.libraries


# The text that shows the location of a Redis.


SECRET = {"username": "u", "password": "p"}


def group(*hosts, name="m", db=0, tls=None, port=26379):
    sentinels = tuple(Endpoint(host, port, **SECRET) for host in hosts or ("a", "b"))
    return SentinelGroup(name, sentinels, Endpoint(db=db, tls=tls, **SECRET))


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        (Endpoint(), "redis://localhost:6379/0"),
        (Endpoint("red", 7000, 3, **SECRET), "redis://red:7000/3"),
        (Endpoint("red", tls={}, **SECRET), "rediss://red:6379/0"),
        (Endpoint("::1", db=1), "redis://[::1]:6379/1"),
        (
            Endpoint(path="/run/redis.sock", db=2, **SECRET),
            "redis+socket:///run/redis.sock?virtual_host=2",
        ),
        (group("a", "::1", db=3), "sentinel://a:26379;[::1]:26379/3 (m)"),
    ],
)
def test_the_url_of_an_endpoint_says_where_it_is_and_nothing_secret(endpoint, url):
    assert endpoint.url == url


def test_an_url_of_a_tcp_place_is_one_that_redis_understands():
    made = redis.connection.parse_url(Endpoint("::1", 7000, 3).url)
    assert (made["host"], made["port"], made["db"]) == ("::1", 7000, 3)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Endpoint("localhost", 6379), Endpoint("127.0.0.1", 6379), True),
        (Endpoint("a", 6379), Endpoint("a", 6379, username="u", password="p"), True),
        (Endpoint("a", 6379, 0), Endpoint("a", 6379, 1), False),
        (Endpoint("a", 6379), Endpoint("a", 6380), False),
        (Endpoint("a"), Endpoint("b"), False),
        (Endpoint(path="/run/a"), Endpoint(path="/run/a"), True),
        (Endpoint(path="/run/a"), Endpoint(path="/run/b"), False),
        (Endpoint(path="/run/a"), Endpoint(path="/run/a", db=1), False),
        (Endpoint(path="/run/a"), Endpoint("localhost"), False),
    ],
)
def test_two_endpoints_are_the_same_database_when_place_and_number_agree(one, other, same):
    assert one.same_database(other) is other.same_database(one) is same


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (group("b", "a"), True),
        (group("a"), False),
        (group("a", "b", "c"), False),
        (group(name="n"), False),
        (group(db=1), False),
        (group(tls={}), False),
        (group(port=1), False),
        (Endpoint("a", 26379), False),
        (Endpoint(), False),
    ],
)
def test_groups_are_the_same_database_when_master_sentinels_and_number_agree(other, same):
    assert group().same_database(other) is same
    assert other.same_database(group()) is same


def test_sentinels_on_this_machine_have_one_name():
    assert group("localhost").same_database(group("127.0.0.1"))


def test_the_kind_of_a_broker_has_its_database_and_not_the_way_to_it():
    assert group(db=3).kind == group("x", db=3).kind == Endpoint("x", db=3).kind
    assert Endpoint("x", db=3).kind == "redis, database 3"


def test_an_endpoint_and_a_group_do_not_show_their_passwords():
    tls = {"ssl_password": "p-word"}
    for shown in map(repr, (Endpoint(tls=tls, **SECRET), group(tls=tls))):
        assert "'p'" not in shown
        assert "p-word" not in shown


# Which of two reports on a group's master counts, in any order in which threads write them.


OLD, NEW = ("old", 1), ("new", 2)


def racing(meanwhile):
    """A cache that runs *meanwhile*, as another thread would, between a read and its write."""

    class Racing(MasterCache):
        _looks = 0

        @property
        def _named(self):
            self._looks += 1
            return KnownMaster() if self._looks == 1 else self._word

        @_named.setter
        def _named(self, word):
            self._word = word

    found = Racing()
    found._named = meanwhile
    return found


@pytest.mark.parametrize(("meanwhile", "is_learnt"), [(NEW, False), (OLD, True)])
def test_a_later_word_of_another_thread_stays(meanwhile, is_learnt):
    found = racing(KnownMaster(meanwhile, 6.0))
    assert found.learn(OLD, 5.0) is is_learnt
    assert found.address == meanwhile


@pytest.mark.parametrize("meanwhile", [KnownMaster(NEW, 4.0), KnownMaster(None, 6.0)])
def test_an_earlier_word_of_another_thread_or_none_gives_way(meanwhile):
    found = racing(meanwhile)
    assert found.learn(OLD, 5.0)
    assert found.address == OLD


# A broker URL on Redis Sentinel is read as kombu reads it, so workers reach the same master.


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
