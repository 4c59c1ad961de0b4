"""What is shown of where a Redis is."""

import pytest
import redis

from celery_delayq.store import Endpoint

SECRET = {"username": "u", "password": "p"}


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
    ],
)
def test_its_url_says_where_it_is_and_nothing_secret(endpoint, url):
    assert endpoint.url == url


def test_an_url_of_a_tcp_place_is_one_that_redis_understands():
    made = redis.connection.parse_url(Endpoint("::1", 7000, 3).url)
    assert (made["host"], made["port"], made["db"]) == ("::1", 7000, 3)
