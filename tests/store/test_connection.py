"""Connections: their settings, pool and forks; exchanges, and waits for replicas."""

import threading
import time
from dataclasses import replace

import pytest
from redis.connection import AbstractConnection

from celery_delayq.core.clock import When
from celery_delayq.core.servers import connection as module
from celery_delayq.core.servers import endpoint as endpoints
from celery_delayq.core.servers.connection import Connection, packed
from celery_delayq.core.servers.endpoint import Endpoint
from celery_delayq.core.servers.pool import MOST
from celery_delayq.core.store import Entries, NewEntry, Wanted
from celery_delayq.core.store.keys import Keys, shard_of
from celery_delayq.core.store.record import Extras, header_for
from celery_delayq.core.store.scripts import Scripts
from celery_delayq.errors import StoreError, StoreUnavailable
from tests.store.answering import OK
from tests.store.support import FAR_MS, MEMBERSHIP, SETTINGS, endpoint, new_record
from tests.support.children import in_child
from tests.support.replicas import replicated
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.libraries


# Connections: their own settings, each command sent once, none shared with a forked child.


PING = packed(["PING"])


@pytest.fixture
def connect(redis_server, redis_url):
    made = []

    def make(place=None):
        made.append(Connection(place or endpoint(redis_server)))
        return made[-1]

    yield make
    for client in made:
        client.close()


class Staying(Endpoint):
    """The server of a plain URL, which cannot move; a query whether it did is a mistake."""

    def _asked(self, *_):
        raise AssertionError("it cannot move")

    find_master = is_current = is_replaced = wait = _asked


def test_a_redis_that_cannot_move_is_not_asked_whether_it_has(redis_server, raw, connect):
    place = endpoint(redis_server)
    client = connect(Staying(host=place.host, port=place.port, db=place.db, path=place.path))
    raw.config_resetstat()

    for _ in range(3):  # a new connection, and an idle one
        client.execute("ping", PING)

    told = raw.info("commandstats")
    asked = {name.removeprefix("cmdstat_").partition("|")[0] for name in told}
    assert asked - {"config", "select"} == {"client", "ping"}


@pytest.mark.usefixtures("short_timeout")
@pytest.mark.parametrize("hangs", [False, True], ids=["the connection breaks", "no answer comes"])
def test_a_command_is_sent_once_though_it_gets_no_answer(connect, answering, hangs):
    commands, over = [], threading.Event()

    def answer(words):
        if words[0] in (b"CLIENT", b"SELECT", b"AUTH"):
            return OK
        commands.append(words)
        over.wait(PATIENCE if hangs else 0)
        return None

    with pytest.raises(StoreUnavailable, match=r"^a step failed: "):
        connect(answering(answer).place).execute("a step", PING)
    over.set()
    assert commands == [[b"PING"]]


def test_no_answer_and_no_connection_is_waited_for_without_a_bound():
    for place in (Endpoint(), Endpoint(tls={}), Endpoint(path="/run/redis")):
        assert place.options()["socket_timeout"] == endpoints.TIMEOUT
    assert Endpoint().options()["socket_connect_timeout"] == endpoints.TIMEOUT


@pytest.mark.parametrize("part", ["é", b"\x00\r\n\xff", "", 2**53, "$1\r\nx\r\n", -1])
def test_any_part_of_a_command_arrives_as_it_is(connect, part):
    expected = part if isinstance(part, bytes) else str(part).encode()
    assert connect().execute("echo", packed(["ECHO", part])) == expected


def number_of(client):
    """The number that Redis gave to the connection of a call."""
    return client.execute("id", packed(["CLIENT", "ID"]))


def test_an_error_reply_leaves_the_connection_in_use(connect):
    client = connect()
    before = number_of(client)
    with pytest.raises(module.StoreError):
        client.execute("wrong", packed(["NO-SUCH-COMMAND"]))
    assert number_of(client) == before


def calls_at_once(client, callers, calls=20):
    """So many threads call at once; returns whether each got its own answers."""
    gate, answers = threading.Barrier(callers), []

    def call(number):
        gate.wait(30)
        echo = packed(["ECHO", number])
        answers.extend(client.execute("echo", echo) == b"%d" % number for _ in range(calls))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return answers == [True] * callers * calls


@pytest.fixture
def few(connect, limits):
    """Make a client with a limited number of connections: ``few(most)``."""

    def make(most):
        limits(connections=most)
        return connect()

    return make


def ping(client):
    """A call that may take long, as on a busy machine another process may."""
    return client.execute("ping", PING, time.monotonic() + 2 * PATIENCE)


@pytest.fixture
def waiting(line):
    """Start a call in a thread; return once it waits for a connection."""
    threads = []

    def start(client, call=ping):
        waits = line.joins()
        thread = threading.Thread(target=call, args=(client,))
        thread.start()
        threads.append(thread)
        eventually(waits)
        return thread

    yield start
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize("most", [20, 2], ids=["one for each", "fewer than callers"])
def test_calls_at_once_share_no_connection_and_wait_for_one(few, raw, most):
    others = {one["id"] for one in raw.client_list()}  # of tests before this one
    assert calls_at_once(few(most), 20)
    found = (one for one in raw.client_list() if one["name"] == "celery_delayq")
    assert sum(one["id"] not in others for one in found) <= most


def test_the_caller_that_waits_longest_is_served_first(few, waiting):
    client, served = few(1), []
    held = client.pool.take(time.monotonic() + 30)

    def note(number):
        connection = client.pool.take(time.monotonic() + 30)
        served.append(number)
        client.pool.give(connection)

    threads = [waiting(client, lambda _, number=number: note(number)) for number in range(4)]

    client.pool.give(held)

    for thread in threads:
        thread.join(30)
    assert served == [0, 1, 2, 3]


def test_a_connection_that_breaks_makes_room_for_who_waits(few, waiting):
    client = few(1)
    broken = client.pool.take(time.monotonic() + 30)
    thread = waiting(client)
    client.pool.drop(broken)
    thread.join(30)
    assert not thread.is_alive()


def test_a_caller_waits_no_longer_for_a_connection_than_its_call_may_take(few):
    client = few(1)
    held = client.pool.take(time.monotonic() + 30)

    began = time.monotonic()
    with pytest.raises(StoreUnavailable) as caught:
        client.execute("a step", PING, until=began + 0.05)

    assert str(caught.value) == ("a step failed: all 1 connections of this process were in use")
    assert 0.05 <= time.monotonic() - began < PATIENCE
    client.pool.give(held)


def test_a_hundred_connections_are_the_most(connect):
    client, until = connect(), time.monotonic() + PATIENCE
    held = [client.pool.take(until) for _ in range(MOST)]

    with pytest.raises(TimeoutError, match="all 100 connections of this process were in use"):
        client.pool.take(time.monotonic() + 0.01)

    for connection in held:
        client.pool.give(connection)


def test_close_closes_every_connection_and_the_next_call_opens_one(connect, raw):
    client, numbers = connect(), set()
    held = [client.pool.take(time.monotonic() + 30) for _ in range(3)]
    for connection in held:
        connection.send_command("CLIENT", "ID")
        numbers.add(connection.read_response())
        client.pool.give(connection)

    def opened():
        return numbers & {int(one["id"]) for one in raw.client_list()}

    assert len(opened()) == 3
    client.close()
    client.close()
    eventually(lambda: not opened())
    assert client.execute("ping", PING) == b"PONG"


def test_a_connection_that_the_server_closed_is_replaced_unseen(connect, raw):
    client = connect()
    number = number_of(client)
    raw.client_kill_filter(_id=number)
    assert client.execute("ping", PING) == b"PONG"


def test_a_forked_child_uses_no_connection_of_its_parent(connect):
    client = connect()
    mine = number_of(client)
    its = int(in_child(lambda: b"%d" % number_of(client)))
    assert its != mine
    assert number_of(client) == mine


def test_a_child_forked_while_every_connection_is_in_use_makes_its_own(few, waiting):
    client = few(1)
    held = client.pool.take(time.monotonic() + 30)
    thread = waiting(client)
    try:
        assert in_child(lambda: ping(client)) == b"PONG"
    finally:
        client.pool.give(held)
        thread.join(30)


# How the store waits for replicas: its commands, and the servers that get them.


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
