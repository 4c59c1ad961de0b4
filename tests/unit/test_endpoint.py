"""The text that shows the location of a Redis."""

import pytest
import redis

from celery_delayq.contrib.sentinel import SentinelGroup
from celery_delayq.core.servers.endpoint import Endpoint

pytestmark = pytest.mark.libraries

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


def test_a_group_does_not_show_its_passwords():
    shown = repr(group(tls={"ssl_password": "p-word"}))
    assert "'p'" not in shown
    assert "p-word" not in shown
