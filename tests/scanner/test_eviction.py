"""A Redis that deletes what waits when its memory is full is warned of, once a scanner."""

import logging

import pytest

from celery_delayq.handover import scanner

WARNING = (
    "the store's Redis deletes what waits when its memory is full, as its maxmemory-policy is "
    "allkeys-lru; set noeviction"
)
EVICTING = ("--maxmemory-policy", "allkeys-lru")
LIMIT = ("--maxmemory", "100mb")


@pytest.fixture
def warned(start_redis, house, caplog):
    """What a scanner has warned of after some passes."""

    def warned(*config, rights=()):
        server = start_redis(*config)
        url = server.url()
        if rights:
            server.client().execute_command("ACL", "SETUSER", "u", "on", ">p", "~*", "&*", *rights)
            url = url.replace("//", "//u:p@")
        made = house(url, delayq_safety_interval=0.1)
        made.client = server.client()
        with caplog.at_level(logging.WARNING, scanner.__name__):
            made.start_asleep()
            for _ in range(3):
                result = made.task.delay_for(0)
                assert made.next_arrival()[0] == result.id
        return [one.getMessage() for one in caplog.records if one.name == scanner.__name__]

    return warned


def test_a_policy_that_evicts_whatever_there_is_is_warned_of_once(warned):
    assert warned(*EVICTING, *LIMIT) == [WARNING]


@pytest.mark.parametrize(
    "config",
    [EVICTING, LIMIT, ("--maxmemory-policy", "volatile-lru", *LIMIT)],
    ids=["no limit", "noeviction", "volatile"],
)
def test_nothing_is_said_of_a_redis_that_keeps_what_waits(warned, config):
    assert warned(*config) == []


def test_nothing_is_said_where_the_user_may_not_ask(warned):
    assert warned(*EVICTING, *LIMIT, rights=("+@all", "-info")) == []
