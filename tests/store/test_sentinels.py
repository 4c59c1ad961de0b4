"""The master that a sentinel names is found, remembered and found again: of two servers, either."""

import contextlib
import os
import select
import signal
import threading
from types import SimpleNamespace

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from celery_delayq.contrib import moving, sentinel
from celery_delayq.contrib import sentinel as sentinels
from celery_delayq.contrib.sentinel import SentinelGroup as SentinelPlaces
from celery_delayq.core import clock
from celery_delayq.core.servers.connection import Connection, packed
from celery_delayq.core.servers.endpoint import Endpoint
from celery_delayq.errors import StoreError, StoreUnavailable
from tests.store.answering import OK
from tests.support.children import in_child
from tests.support.ports import free_port
from tests.support.sentinels import NAME, SentinelGroup, SentinelServer
from tests.support.slow_link import SlowLink
from tests.support.waiting import PATIENCE, eventually

PING, SET = packed(["PING"]), packed(["SET", "key", "value"])
BLOCKED = packed(["BLPOP", "nothing", "0.5"])  # no answer for half a second
LONG = 2 * PATIENCE  # seconds for a call: a server gets a third of them
ROUNDS = 3  # of asking for a master, before a call is given up in these tests


@pytest.fixture
def sentinel_saying(answering):
    """The port of a server that gives each command of a sentinel the same answer."""

    def make(answer):
        asked = (b"SENTINEL", b"SUBSCRIBE")
        return answering(lambda words: answer if words[0] in asked else OK).port

    return make


class Client(Connection):
    """A connection to the master of a group."""

    def __init__(self, group, timeout):
        super().__init__(group, timeout)
        self.group = group


class Naming:
    """A sentinel that names the server that a test sets, and clients that use it."""

    def __init__(self, sentinel, servers):
        self.sentinel, self.servers = sentinel, servers
        self._made = []

    def name(self, server):
        # In one piece: a client that asks in between would hear of no such master.
        with self.sentinel.client() as client, client.pipeline(transaction=False) as pipe:
            pipe.execute_command("SENTINEL", "REMOVE", NAME)
            pipe.execute_command("SENTINEL", "MONITOR", NAME, "127.0.0.1", server.port, 1)
            pipe.execute()

    def group(self, *before, name=NAME, **options):
        """A group that knows the sentinels at these ports, and this one behind them."""
        ports = [*before, self.sentinel.port]
        options = {"server": Endpoint(), "ask": PATIENCE, **options}
        return SentinelPlaces(name, tuple(Endpoint("127.0.0.1", port) for port in ports), **options)

    def client(self, *before, timeout=LONG, **options):
        self._made.append(Client(self.group(*before, **options), timeout))
        return self._made[-1]

    def close(self):
        for one in self._made:
            one.close()


def naming_server(server, *lines, **options):
    """A sentinel that is to name this server."""
    made = SentinelServer(server.binary, **options)
    made.write([f"sentinel monitor {NAME} 127.0.0.1 {server.port} 1", *lines])
    return made


@pytest.fixture
def naming(start_redis):
    servers = [start_redis("--repl-diskless-sync-delay", "0") for _ in range(2)]
    with naming_server(servers[0]) as sentinel:
        made = Naming(sentinel, servers)
        yield made
        made.close()


@pytest.fixture
def first(naming):
    return naming.servers[0]


@pytest.fixture
def second(naming):
    return naming.servers[1]


@pytest.fixture
def client(naming):
    """A client that has found the first server."""
    made = naming.client()
    made.execute("write", PING)
    return made


@pytest.fixture
def spare(first):
    """Another sentinel, which is cut off, and always names the first server."""
    with naming_server(first) as one:
        yield one


@pytest.fixture
def moved(naming, spare, first, second):
    """A client that knows that the second server is the master, unlike its first sentinel."""
    made = naming.client(spare.port)
    made.execute("read", PING)
    move(made, naming, second, first)
    return made


@contextlib.contextmanager
def paused(server):
    server.pause()
    try:
        yield
    finally:
        server.resume()


def place_of(server):
    return "127.0.0.1", server.port


def copy(server, master):
    """Make a server a replica, and wait until it is in sync."""
    server.client().replicaof("127.0.0.1", master.port)
    eventually(lambda: server.client().info("replication")["master_link_status"] == "up")


def keys_of(*servers):
    return [server.client().keys() for server in servers]


def ours(server):
    """How many of this package's connections a server has."""
    return sum(one["name"] == "celery_delayq" for one in server.client().client_list())


def idle(client):
    """The idle listeners of a client."""
    return client.group._found.ears.get().idle


def move(client, naming, new, old):
    """Make another server the master, and let the client find it."""
    naming.name(new)
    client.group.moved(place_of(new), place_of(old))


@pytest.fixture
def once(monkeypatch):
    """Run a function in another thread at a method's call: ``with once(owner, "wait", act)``."""

    @contextlib.contextmanager
    def put(owner, name, act):
        called, method = threading.Event(), getattr(owner, name)

        def calling(*args):
            called.set()
            return method(*args)

        def acting():
            assert called.wait(LONG)
            act()

        monkeypatch.setattr(owner, name, calling)
        thread = threading.Thread(target=acting)
        thread.start()
        yield
        thread.join()

    return put


@pytest.fixture
def a_few_rounds(monkeypatch, limits):
    """The time of a call is over after so many rounds of asking, however long they took."""
    pauses = []

    def sleep(_):
        pauses.append(len(pauses))
        if len(pauses) == ROUNDS - 1:
            limits(moving_again_s=LONG)

    monkeypatch.setattr(clock, "sleep", sleep)
    return pauses


def test_the_sentinel_names_the_server_that_is_written_to(naming, first, second):
    naming.client().execute("write", SET)
    assert keys_of(first, second) == [[b"key"], []]


def test_a_master_once_found_is_remembered_and_no_sentinel_is_asked_again(naming, client, first):
    naming.sentinel.kill()
    with contextlib.closing(Client(client.group, LONG)) as another:
        another.execute("write", SET)
        assert ours(first) == 2


@pytest.mark.parametrize(
    "command",
    [SET, packed(["EVAL", "return redis.call('SET', KEYS[1], 'value')", 1, "key"])],
    ids=["a command", "a script"],
)
def test_a_call_that_a_replica_refuses_goes_on_to_the_master(
    naming, client, first, second, command
):
    copy(first, second)
    naming.name(second)
    client.execute("write", command)
    assert second.client().get("key") == b"value"
    assert eventually(lambda: ours(first) == 0)


def test_a_call_that_connects_to_the_old_master_meanwhile_does_not_bring_it_back(
    naming, first, second
):
    with SlowLink(first.port, 0.2) as slow:
        client = naming.client()
        client.group.moved(("127.0.0.1", slow.port))
        call = PING
        caller = threading.Thread(target=client.execute, args=("read", call))
        caller.start()
        assert eventually(lambda: ours(first))  # it connects; only a command or two remain
        naming.name(second)

        client.group.moved(place_of(second))
        caller.join(30)
        client.execute("write", SET)

    assert keys_of(first, second) == [[], [b"key"]]


def test_a_new_master_that_was_lost_since_does_not_bring_the_old_one_back(
    naming, first, second, monkeypatch
):
    client = naming.client()
    group, ask = client.group, sentinels._why_no_master
    group.moved(place_of(first))

    def and_meanwhile(connection):
        why = ask(connection)
        if connection.port == first.port:
            group.moved(place_of(second))
            group.lost(SimpleNamespace(host="127.0.0.1", port=second.port))
        return why

    monkeypatch.setattr(sentinels, "_why_no_master", and_meanwhile)
    naming.name(second)

    client.execute("write", SET)

    assert keys_of(first, second) == [[], [b"key"]]


def test_a_slow_answer_of_the_new_master_does_not_lead_back(moved, first, second, limits):
    limits(moving_s=0.1)
    assert moved.execute("read", BLOCKED) is None
    moved.execute("write", SET)
    assert keys_of(first, second) == [[], [b"key"]]
    assert moved.group._found.first == 1  # the sentinel that is first from now on


@pytest.mark.parametrize("how", ["lost", "doubt"])
def test_a_new_master_that_has_to_be_found_anew_is_not_the_old_one(moved, first, second, how):
    held = moved.pool.take(10**9)
    moved.pool.give(held)
    moved.group.lost(held) if how == "lost" else moved.group.doubt()
    moved.execute("write", SET)
    assert keys_of(first, second) == [[], [b"key"]]


def test_while_the_new_master_is_away_the_old_one_is_not_written_to(
    moved, first, second, a_few_rounds
):
    second.kill()
    with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{second.port}: Error"):
        moved.execute("write", SET)
    assert len(a_few_rounds) == ROUNDS - 1
    assert keys_of(first) == [[]]


def no_sentinel_names_another(naming, moved, _):
    moved.execute("read", PING)
    naming.servers[1].kill()
    naming.name(naming.servers[0])


def that_is_heard(naming, moved, _):
    move(moved, naming, *naming.servers)


def the_time_is_over_in_which_it_is_made_a_replica(naming, moved, limits):
    moved.group.lost(SimpleNamespace(host="127.0.0.1", port=naming.servers[1].port))
    limits(master_left_s=0.0)


@pytest.mark.parametrize(
    "when",
    [no_sentinel_names_another, that_is_heard, the_time_is_over_in_which_it_is_made_a_replica],
)
def test_the_old_master_can_be_it_again(naming, moved, limits, when):
    when(naming, moved, limits)
    moved.execute("write", SET)
    assert keys_of(naming.servers[0]) == [[b"key"]]


def test_idle_connections_to_the_old_master_are_closed_when_it_is_another(naming, first, second):
    client = naming.client()
    held = [client.pool.take(10**9) for _ in range(3)]
    for one in held:
        client.pool.give(one)
    assert ours(first) == 3
    naming.name(second)

    client.group.lost(held[0])
    client.execute("write", SET)

    eventually(lambda: (ours(first), ours(second)) == (0, 1))
    assert keys_of(first, second) == [[], [b"key"]]


def test_a_connection_in_use_is_read_to_its_end_and_closed_when_given_back(naming, first, second):
    client = naming.client()
    held = client.pool.take(10**9)
    held.send_command("PING")
    naming.name(second)
    client.group.moved(place_of(second))

    answer = held.read_response()
    client.pool.give(held)

    assert answer == b"PONG"
    assert eventually(lambda: ours(first) == 0)


@pytest.mark.usefixtures("a_few_rounds")
def test_a_replica_that_is_still_named_is_not_written_to(naming, first, second):
    copy(first, second)
    client = naming.client()

    with pytest.raises(StoreUnavailable) as caught:
        client.execute("write", packed(["CONFIG", "SET", "maxclients", "99"]))

    assert str(caught.value) == (
        f"write failed: the master '{NAME}' that its sentinels name cannot be used: "
        f"127.0.0.1:{first.port}: it is a replica"
    )
    assert not caught.value.may_have_run
    assert first.client().config_get("maxclients") != {"maxclients": "99"}


@pytest.mark.parametrize("state", ["replica", "killed"])
def test_while_there_is_no_master_a_call_waits_for_one(naming, first, second, state, once):
    copy(first, second) if state == "replica" else first.kill()
    with once(clock, "sleep", lambda: naming.name(second)):
        naming.client().execute("write", SET)
    assert second.client().get("key") == b"value"


def test_a_call_without_an_answer_is_given_up_when_another_is_named(
    naming, client, second, limits, once
):
    limits(moving_s=0.1)
    with paused(naming.servers[0]):
        with (
            once(moving.MovingMaster, "wait", lambda: naming.name(second)),
            pytest.raises(StoreUnavailable, match="another is the master by now") as caught,
        ):
            client.execute("write", SET)
        client.execute("write", SET)

    assert caught.value.may_have_run
    assert second.client().get("key") == b"value"


def test_a_waiting_call_learns_of_a_master_that_another_of_its_process_found(
    client, first, second, limits, once
):
    limits(moving_s=60.0)
    with (
        paused(first),
        once(moving.MovingMaster, "wait", lambda: client.group.moved(place_of(second))),
        pytest.raises(StoreUnavailable, match="another is the master by now"),
    ):
        client.execute("write", SET)


def test_a_slow_answer_is_waited_for_while_no_other_is_named(naming, limits):
    limits(moving_s=0.05)
    assert naming.client().execute("read", BLOCKED) is None


@pytest.mark.parametrize("how", ["refuses", "is silent"])
def test_sentinels_that_do_not_answer_are_passed_over(naming, spare, first, how):
    spare.pause() if how == "is silent" else spare.kill()
    client = naming.client(spare.port, ask=0.2)

    def is_written():
        # A sound one that is starved for so long is passed over, too.
        with contextlib.suppress(StoreUnavailable):
            client.execute("write", SET)
            return True

    eventually(is_written)
    spare.resume() if how == "is silent" else None

    assert first.client().get("key") == b"value"
    assert client.group._found.first == 1  # the sentinel that is first from now on


def error_of(client):
    """The error of a call that did not run."""
    with pytest.raises(StoreUnavailable) as caught:
        client.execute("write", SET)
    assert not caught.value.may_have_run
    return str(caught.value).removeprefix("write failed: ")


def test_the_error_for_an_unknown_name_has_the_sentinels_that_were_asked(naming):
    place = f"127.0.0.1:{naming.sentinel.port}"
    said = error_of(naming.client(name="other"))
    assert said == f"the sentinels {place} know no master 'other'"


def test_without_any_sentinel_the_error_has_each_with_its_reason(naming, first):
    port = free_port()
    naming.sentinel.kill()
    said = error_of(naming.client(port, first.port))
    assert said.startswith(f"no sentinel names the master '{NAME}': 127.0.0.1:{port}: Error")
    assert f"; 127.0.0.1:{first.port}: it is a Redis, not a sentinel; " in said
    assert f"; 127.0.0.1:{naming.sentinel.port}: Error" in said


def test_a_sentinel_that_knows_too_few_others_is_not_believed(naming):
    assert "it knows fewer than 1 other sentinels" in error_of(naming.client(others=1))


def test_a_wrong_password_of_the_master_is_said_at_once_and_not_shown(naming, first):
    first.client().config_set("requirepass", "right")
    said = error_of(naming.client(server=Endpoint(password="wrong-secret"), timeout=LONG))
    assert said.startswith("invalid username-password pair")
    assert "wrong-secret" not in said
    first.client(password="right").config_set("requirepass", "")


def test_a_wrong_password_of_the_sentinels_is_said_and_not_shown(first):
    with naming_server(first, password="right") as closed:
        place = Endpoint("127.0.0.1", closed.port, password="wrong-secret")
        group = SentinelPlaces(NAME, (place,), Endpoint(), ask=PATIENCE)
        said = error_of(Connection(group, LONG))
    assert "invalid username-password pair" in said
    assert "wrong-secret" not in said


def test_a_listener_at_a_sentinel_hears_of_another_master_and_the_next_call_goes_there():
    with SentinelGroup(replicas=1) as real:
        places = tuple(Endpoint("127.0.0.1", one.port) for one in real.sentinels)
        groups = [SentinelPlaces(NAME, places, Endpoint(), ask=PATIENCE) for _ in range(2)]
        client = Client(groups[0], LONG)
        for _ in range(2):
            client.execute("write", SET)
        groups[1].connection(LONG).disconnect()
        (own,), herald = idle(client), groups[1].herald()
        herald.listen()
        try:
            old = real.failover()
            new, _ = real.elected(old)
            # The old one still answers.
            assert eventually(lambda: _is_readable(own), 60)
            client.execute("write", packed(["SET", "after", "1"]))
            assert client.execute("read", packed(["CONFIG", "GET", "port"]))[1] == b"%d" % new.port
            assert eventually(lambda: _is_readable(herald) and herald.hear(), 60)
            assert groups[1]._found.left == place_of(old)
        finally:
            herald.close()
            client.close()
        for one in real.sentinels:
            one.kill()
        connection = groups[1].connection(LONG)  # no sentinel is left
        connection.disconnect()
        assert connection.port == new.port


def test_a_forked_child_listens_for_itself(client):
    (herald,) = idle(client)

    def listens():
        client.execute("write", SET)
        (another,) = idle(client)
        return b"%d %d" % (another is herald, len(another.sockets))

    assert in_child(listens) == b"0 1"
    assert len(herald.sockets) == 1
    assert idle(client)[0] is herald


def test_closing_ends_the_listening_until_the_next_call(client):
    (herald,) = idle(client)
    assert herald.sockets

    client.close()
    client.close()

    assert herald.sockets == []
    assert not idle(client)
    client.execute("write", SET)
    (another,) = idle(client)
    assert another.sockets


def test_one_thread_looks_while_another_calls(client):
    busy = idle(client).pop()
    client.execute("write", SET)
    assert not idle(client)
    busy.close()


def test_a_listener_lost_by_an_interrupted_thread_is_replaced_when_its_time_is_over(client):
    idle(client).pop()  # like an interruption right after this

    def listens():
        client.execute("read", PING)
        return any(one.sockets for one in idle(client))

    assert not listens()
    client.group._found.ears.get().busy_until = clock.monotonic()
    assert listens()


def test_threads_that_begin_to_listen_at_once_leave_one_that_does(naming):
    client = naming.client()
    idle(client).extend([client.group.herald(), client.group.herald()])
    client.execute("write", SET)
    (herald,) = idle(client)
    assert herald.sockets


def _is_readable(herald):
    return select.select(herald.sockets, [], [], 0.1)[0]


def heard(herald):
    """Listen; the ports of the sentinels that are listened to then."""
    herald.listen()
    return [one.getpeername()[1] for one in herald.sockets]


@pytest.fixture
def herald_of(naming, limits):
    """A listener of a group whose first sentinel is at this port; it asks again at once."""
    made = []

    def make(port, turn=0, again=0.0, **options):
        limits(failover_listen_again_s=again)
        made.append(naming.group(port, **options).herald())
        made[-1]._turn = turn
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_another_sentinel_is_listened_to_when_one_is_gone(naming, spare, herald_of):
    herald = herald_of(spare.port)
    assert heard(herald) == [spare.port]
    spare.kill()
    assert not eventually(lambda: _is_readable(herald)) or not herald.hear()
    assert herald.sockets == []
    assert heard(herald) == [naming.sentinel.port]


def test_a_sentinel_that_is_not_believed_is_not_listened_to_either(first, herald_of):
    known = f"sentinel known-sentinel {NAME} 127.0.0.1 {free_port()} {'f' * 40}"
    with naming_server(first, known) as believed:
        herald = herald_of(believed.port, turn=1, others=1)
        assert heard(herald) == []
        assert heard(herald) == [believed.port]


def test_a_sentinel_that_gives_no_sign_of_life_is_left_for_another(
    naming, spare, herald_of, limits
):
    limits(failover_sign_s=0.1)
    herald = herald_of(spare.port, again=0.1)
    herald.listen()
    with paused(spare):
        eventually(lambda: heard(herald) == [naming.sentinel.port])


def test_a_refusal_for_lack_of_replicas_makes_it_ask_the_sentinels_next_time(
    naming, client, first, second
):
    first.client().config_set("min-replicas-to-write", 1)
    naming.name(second)
    with pytest.raises(StoreUnavailable, match="NOREPLICAS"):
        client.execute("write", SET)
    client.execute("write", SET)
    assert keys_of(first, second) == [[], [b"key"]]


@pytest.mark.usefixtures("a_few_rounds")
def test_of_two_commands_the_first_may_have_run_where_the_second_met_a_replica(
    naming, client, first, second
):
    copy(first, second)
    naming.name(second)
    second.kill()
    with pytest.raises(StoreUnavailable) as caught:
        client.exchange("write", [PING, SET], clock.monotonic() + LONG)
    assert caught.value.may_have_run


def test_a_command_refused_for_another_reason_keeps_its_connection(naming, first):
    client = naming.client()
    for _ in range(3):
        with pytest.raises(StoreError, match="wrong number of arguments"):
            client.execute("write", packed(["SET", "key"]))
    assert first.client().info("stats")["total_connections_received"] < 20
    assert ours(first) == 1


def interrupted(*_):
    raise KeyboardInterrupt


def test_an_interrupted_call_breaks_no_other_that_waits(naming, first, limits):
    limits(moving_s=60.0)
    client = naming.client()
    answers = []
    blocked = packed(["BLPOP", "list", LONG])
    other = threading.Thread(target=lambda: answers.append(client.execute("read", blocked)))
    before = signal.signal(signal.SIGALRM, interrupted)

    def interrupt_once_blocked():
        eventually(lambda: first.client().info("clients")["blocked_clients"] == 2)
        os.kill(os.getpid(), signal.SIGALRM)

    alarm = threading.Thread(target=interrupt_once_blocked)

    def call():
        alarm.start()
        client.execute("read", packed(["BLPOP", "nothing", LONG]))

    other.start()
    try:
        assert eventually(lambda: first.client().info("clients")["blocked_clients"])
        with pytest.raises(KeyboardInterrupt):
            call()
        alarm.join()
    finally:
        signal.signal(signal.SIGALRM, before)
    first.client().rpush("list", "end")
    other.join(PATIENCE)

    assert answers == [[b"list", b"end"]]
    assert client.group._found.address == place_of(first)


@pytest.mark.parametrize("sentinel", ["is silent", "names the same master"])
def test_a_broken_link_breaks_no_other_call_that_waits(naming, first, limits, sentinel):
    limits(moving_s=0.05)
    client = naming.client(ask=0.2) if sentinel == "is silent" else naming.client()
    held = client.pool.take(10**9)
    client.group.lost(held)

    with paused(naming.sentinel) if sentinel == "is silent" else contextlib.nullcontext():
        held.send_command("BLPOP", "nothing", "0.4")
        client.group.wait(held, clock.monotonic() + PATIENCE)

    assert held.read_response() is None
    client.pool.give(held)
    assert ours(first) == 1


def test_closing_a_pool_forgets_no_master(client, first):
    client.pool.close()
    assert client.group._found.address == place_of(first)


def test_a_lack_of_replicas_closes_no_link_to_who_is_still_the_master(naming, first):
    client = naming.client()
    held = [client.pool.take(10**9) for _ in range(3)]
    for one in held:
        client.pool.give(one)
    first.client().config_set("min-replicas-to-write", 1)

    with pytest.raises(StoreUnavailable, match="NOREPLICAS"):
        client.execute("write", SET)
    client.execute("read", PING)

    assert all(one._sock for one in held)
    assert not client.group._found.is_doubted


def words(*parts):
    return b"*%d\r\n%s" % (len(parts), b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))


WRONG = {
    "no number": words(b"127.0.0.1", b"port"),
    "one word": words(b"127.0.0.1"),
    "a number": b":5\r\n",
    "a text": b"$9\r\n127.0.0.1\r\n",
    "no text": words(b"\xff\xfe", b"1"),
    "nothing": b"*2\r\n$-1\r\n$-1\r\n",
    "a port too high": words(b"127.0.0.1", b"99999999"),
    "no host": words(b"a..b", b"7461"),
}


@pytest.mark.parametrize("answer", WRONG.values(), ids=WRONG)
def test_a_wrong_answer_is_passed_over(naming, first, sentinel_saying, answer):
    client = naming.client(sentinel_saying(answer))
    client.execute("write", SET)
    assert first.client().get("key") == b"value"


def test_a_wrong_answer_is_said_where_there_is_no_other(naming, sentinel_saying):
    port = sentinel_saying(b":5\r\n")
    naming.sentinel.kill()
    assert f"127.0.0.1:{port}: not a sentinel's answer" in error_of(naming.client(port))


def test_a_limit_of_time_that_ends_meanwhile_is_no_wrong_answer(naming, monkeypatch):
    def limit(*_):
        raise SoftTimeLimitExceeded

    monkeypatch.setattr(sentinel, "_asked", limit)

    with pytest.raises(SoftTimeLimitExceeded):
        naming.client().execute("write", SET)


@pytest.mark.parametrize("said", [b":5\r\n", b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n:5\r\n"])
def test_a_server_that_talks_unlike_a_sentinel_is_not_listened_to(sentinel_saying, said):
    place = Endpoint("127.0.0.1", sentinel_saying(b"+OK\r\n" + said))
    herald = SentinelPlaces(NAME, (place,), Endpoint(), ask=PATIENCE).herald()
    herald.listen()
    assert herald.sockets
    assert eventually(lambda: not herald.hear() and not herald.sockets)


@pytest.mark.parametrize("address", [("a..b", 6379), ("127.0.0.1", 99999999)])
def test_an_address_that_cannot_be_one_is_forgotten(client, first, address):
    client.group.moved(address)
    client.execute("write", SET)
    assert first.client().get("key") == b"value"
