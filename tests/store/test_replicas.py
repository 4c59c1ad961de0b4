"""How the store waits for replicas: its commands, and the servers that get them."""

import time
from dataclasses import replace

import pytest
from redis.connection import AbstractConnection

from celery_delayq.core.clock import When
from celery_delayq.core.servers.connection import Connection, packed
from celery_delayq.core.servers.endpoint import Endpoint
from celery_delayq.core.store import Entries, NewEntry, Wanted
from celery_delayq.core.store.keys import Keys, shard_of
from celery_delayq.core.store.record import Extras, header_for
from celery_delayq.core.store.scripts import Scripts
from celery_delayq.errors import StoreError
from tests.store.support import FAR_MS, MEMBERSHIP, SETTINGS, endpoint, new_record
from tests.support.replicas import replicated
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.libraries

ONE = Wanted(1, 30)
LIST = header_for("L", "celery")


@pytest.fixture
def pooled(redis_server, redis_url):
    connection = Connection(endpoint(redis_server))
    yield connection
    connection.close()


def soon():
    return time.monotonic() + PATIENCE


def entries_on(connection):
    return Entries([Scripts(connection, Keys("delayq"), SETTINGS)], MEMBERSHIP)


def schedule(entries, *ids):
    """The receipts of one call's answer."""
    new = [NewEntry(one, When("at", FAR_MS), new_record(one, LIST)) for one in ids]
    return entries.schedule(new)


def test_an_exchange_gives_each_answer_of_one_connection(pooled):
    sent = [packed(["ECHO", "a"]), packed(["CLIENT", "ID"]), packed(["CLIENT", "ID"])]
    told, one, other = pooled.exchange("ask", sent, soon())
    assert (told, one) == (b"a", other)


@pytest.mark.parametrize("place", range(3))
def test_a_refusal_within_an_exchange_is_raised_and_leaves_no_answer_behind(pooled, place):
    before = pooled.execute("ask", packed(["CLIENT", "ID"]))
    sent = [packed(["ECHO", f"{number}"]) for number in range(3)]
    sent[place] = packed(["NO-SUCH-COMMAND"])
    with pytest.raises(StoreError, match=r"^ask failed: .*NO-SUCH-COMMAND"):
        pooled.exchange("ask", sent, soon())
    for number in range(10, 14):
        assert pooled.execute("echo", packed(["ECHO", number])) == b"%d" % number
    assert pooled.execute("ask", packed(["CLIENT", "ID"])) == before


def test_an_exchange_that_is_interrupted_leaves_no_answer_behind(pooled, monkeypatch):
    pooled.execute("ping", packed(["PING"]))

    def read(*_, **__):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(AbstractConnection, "read_response", read)
    with pytest.raises(KeyboardInterrupt):
        pooled.exchange("ask", [packed(["ECHO", 1]), packed(["ECHO", 2])], soon())
    assert pooled.execute("echo", packed(["ECHO", 3])) == b"3"


def test_an_exchange_ends_when_it_should(start_redis):
    server = start_redis()
    pooled = Connection(Endpoint("127.0.0.1", server.port))
    pooled.execute("ping", packed(["PING"]))
    server.pause()
    began = time.monotonic()
    with pytest.raises(StoreError):
        pooled.exchange("ask", [packed(["PING"]), packed(["PING"])], began + 0.3)
    assert 0.3 <= time.monotonic() - began < PATIENCE
    server.resume()
    pooled.close()


def test_a_wait_for_replicas_changes_nothing_and_reaches_the_replica(each_redis):
    with replicated(binary=each_redis.binary) as pair:
        connection = Connection(endpoint(pair.master))
        entries = entries_on(connection)
        receipts = schedule(entries, "a", "b")
        before = contents(pair.client)
        offset = pair.client.info("replication")["master_repl_offset"]
        assert entries.wait_for_replicas(receipts, ONE) == 1
        assert contents(pair.client) == before
        assert pair.client.info("replication")["master_repl_offset"] > offset
        connection.close()


def contents(client):
    found = {}
    for key in client.keys("*"):
        kind = client.type(key)
        found[key] = client.hgetall(key) if kind == b"hash" else client.dump(key)
    return found


def test_a_redis_that_knows_nothing_of_the_call_proves_nothing(each_redis, caplog):
    """A failover between the answer and the wait: the new master does not have the entry."""
    with replicated(binary=each_redis.binary) as pair:
        before, after = (Connection(endpoint(one)) for one in (each_redis, pair.master))
        receipts = schedule(entries_on(before), "a")
        schedule(entries_on(after), "another")
        entries = entries_on(after)
        assert entries.wait_for_replicas(receipts, ONE) == 0
        for one in (before, after):
            one.close()
    (told,) = caplog.messages
    assert told.endswith("requires: the Redis that answered does not have them")


def test_of_several_shards_the_fewest_count(each_redis):
    """Shards as on the nodes of a cluster; on a single Redis all counts are the same."""
    ids = [next(one for one in "abcdef" if shard_of(one, 2) == shard) for shard in range(2)]
    with replicated(binary=each_redis.binary) as pair, replicated(0) as alone:
        connections = [Connection(endpoint(one.master)) for one in (pair, alone)]
        settings = replace(SETTINGS, shards=2)
        scripts = [
            Scripts(one, Keys("delayq", shard, 2), settings)
            for shard, one in enumerate(connections)
        ]
        made = Entries(scripts, MEMBERSHIP)
        receipts = schedule(made, *ids)
        assert made.wait_for_replicas(receipts[:1], ONE) == 1
        assert made.wait_for_replicas(receipts, Wanted(1, 0.2)) == 0
        # The shard of the key counts, not that of the id.
        record = new_record("other", LIST).with_extras(Extras(key=ids[0]))
        id_elsewhere = next(one for one in "ghijkl" if shard_of(one, 2) == 1)
        keyed = made.schedule([NewEntry(id_elsewhere, When("at", FAR_MS), record)])
        assert made.wait_for_replicas(keyed, ONE) == 1
        for one in connections:
            one.close()


def test_of_several_calls_each_has_to_be_known(redis_server, pooled):
    entries = entries_on(pooled)
    operations = [schedule(entries, name)[0].operation for name in "ab"]
    assert len({*operations}) == 2
    assert entries.shards[0].scripts.call("replicate", operations=operations) == 1
    unknown = bytes(12)
    for asked in ([*operations, unknown], [unknown, *operations]):
        assert entries.shards[0].scripts.call("replicate", operations=asked) == 0


def test_a_call_is_known_when_its_answer_has_become_an_older_one(redis_server, pooled):
    entries = entries_on(pooled)
    (receipt,) = schedule(entries, "a")
    raw, keys = redis_server.client(), entries.shards[0].scripts.keys
    raw.rename(keys["calls"], keys["calls_old"])
    scripts = entries.shards[0].scripts
    assert scripts.call("replicate", operations=[receipt.operation]) == 1


@pytest.mark.parametrize(
    ("wanted", "seconds", "command"),
    [
        (Wanted(2, 1.5), 1.5, "WAIT 2 1500"),
        (Wanted(1, 1, "aof"), 0.25, "WAITAOF 1 1 250"),
        # There may be no time left; and 0 would mean for ever.
        (Wanted(1, 1), -3, "WAIT 1 1"),
    ],
)
def test_the_command_that_waits_for_replicas_has_number_and_time(wanted, seconds, command):
    assert wanted.packed(seconds) == packed(command.split())
