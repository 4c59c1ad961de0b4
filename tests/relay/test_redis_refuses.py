"""A broker's Redis refuses: faults of the server cost no attempt, those of a list back off."""

import pytest

from celery_delayq.errors import BrokerDown
from tests.support.ports import free_port
from tests.support.sentinels import NAME, SentinelServer
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.libraries


def cannot_save(house):
    """MISCONF: the last snapshot failed, as a folder has the name of its file."""
    place = house.server.folder / "dump.rdb"
    place.mkdir()
    house.client.config_set("save", "3600 1")
    house.client.bgsave()
    eventually(lambda: house.client.info("persistence")["rdb_last_bgsave_status"] == "err")

    def mend():
        house.client.config_set("save", "")
        place.rmdir()

    return mend


def refuses_by(trouble, remedy):
    """A fault that one command makes, and another one mends."""

    def begin(house):
        house.client.execute_command(*trouble)
        return lambda: house.client.execute_command(*remedy)

    return begin


def by_config(name, trouble, remedy):
    return refuses_by(("CONFIG", "SET", name, trouble), ("CONFIG", "SET", name, remedy))


RIGHTS = ("ACL", "SETUSER", "default")
TROUBLES = {
    "NOREPLICAS": by_config("min-replicas-to-write", 1, 0),
    "MISCONF": cannot_save,
    "READONLY": refuses_by(("REPLICAOF", "127.0.0.1", free_port()), ("REPLICAOF", "NO", "ONE")),
    "OOM": by_config("maxmemory", 1, 0),
    "NOPERM, as no list can be pushed to": refuses_by((*RIGHTS, "-lpush"), (*RIGHTS, "+lpush")),
}


@pytest.fixture(params=["by its address", "through a sentinel"])
def other_redis(request, other_redis, make_house):
    """A broker's Redis, and its URLs."""
    if request.param == "by its address":
        yield other_redis
        return
    sentinel = SentinelServer(other_redis.server.binary)
    sentinel.write([f"sentinel monitor {NAME} 127.0.0.1 {other_redis.server.port} 1"])
    with sentinel:
        # A busy machine may need longer than it has by default to answer.
        options = {"master_name": NAME, "sentinel_kwargs": {"socket_timeout": PATIENCE}}
        url = f"sentinel://127.0.0.1:{sentinel.port}/0"
        house = make_house(url, other_redis.where, broker_transport_options=options)
        house.client, house.server = other_redis.client, other_redis.server
        yield house


@pytest.mark.parametrize("trouble", TROUBLES)
def test_the_servers_own_trouble_costs_no_task_an_attempt(other_redis, trouble):
    relay = other_redis.relay()
    relay.batch(lambda: False)  # a connection is open when the fault begins
    mend = TROUBLES[trouble](other_redis)
    for number in range(3):
        other_redis.due_now(task_id=f"{number}", queue="ab"[number % 2])
    for _ in range(10):
        with pytest.raises(BrokerDown):
            relay.batch(lambda: False)
    assert other_redis.counts() == (3, 0, 0)

    mend()
    relay.batch(lambda: False)

    arrived = other_redis.take("a", 2) + other_redis.take("b", 1)
    assert [message.headers["id"] for message in arrived] == ["0", "2", "1"]
    assert {message.headers["delayq_attempt"] for message in arrived} == {1}
    assert not any("delayq_redelivered" in message.headers for message in arrived)


def test_only_tasks_for_a_list_without_the_right_to_it_wait_however_often_they_are_denied(
    other_redis, limits
):
    limits(relay_refusals=2, relay_wait_s=0.05, broker_denied_s=0)
    other_redis.client.execute_command("ACL", "SETUSER", "default", "resetkeys", "~good")
    for number in range(20):
        other_redis.due_now(task_id=f"{number}", queue=("good", "bad")[number % 2])
    other_redis.relay_once()
    assert other_redis.counts() == (10, 0, 0)
    other_redis.start()
    eventually(lambda: other_redis.delayq.get("1").attempts > 3)
    waiting, in_flight, dead = other_redis.counts()
    assert (waiting + in_flight, dead) == (10, 0)

    other_redis.client.execute_command("ACL", "SETUSER", "default", "allkeys")

    assert other_redis.left("good") == 10
    denied = [message.headers["id"] for message in other_redis.take("bad", 10)]
    assert sorted(denied, key=int) == [f"{number}" for number in range(1, 20, 2)]
