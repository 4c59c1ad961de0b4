"""Connections: their own settings, each command sent once, none shared with a forked child."""

import threading
import time

import pytest

from celery_delayq.core.servers import connection as module
from celery_delayq.core.servers import endpoint as endpoints
from celery_delayq.core.servers.connection import Connection, packed
from celery_delayq.core.servers.endpoint import Endpoint
from celery_delayq.core.servers.pool import MOST
from celery_delayq.errors import StoreUnavailable
from tests.store.answering import OK
from tests.store.support import endpoint
from tests.support.children import in_child
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.libraries

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


def test_an_endpoint_does_not_show_its_password():
    shown = repr(Endpoint("h", password="secret", tls={"ssl_password": "secret"}))
    assert "secret" not in shown
