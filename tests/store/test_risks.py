"""Risks that a Redis loses or refuses waiting tasks: one line each, from its own answers."""

from dataclasses import astuple

import pytest

from celery_delayq.core.servers import risks
from celery_delayq.core.servers.connection import Connection, packed
from celery_delayq.core.servers.endpoint import Endpoint
from celery_delayq.core.servers.risks import SENTINEL, Facts
from celery_delayq.core.store.changes import Removal
from celery_delayq.errors import StoreUnavailable
from tests.lab.faults.proxy import Proxy
from tests.support.ports import free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.core

LRU = ("--maxmemory-policy", "allkeys-lru")
DISK = "check its log: its disk may be full or not writable, or memory too short for a fork"
ROOM = "raise maxmemory, or delete data that you do not need"
FOLLOWED = "check that replica's log and its link to the master"
GONE = "tasks scheduled then are lost, tasks delivered then are delivered again"


@pytest.fixture
def connect():
    made = []

    def connect(server, **login):
        made.append(Connection(Endpoint(path=server.socket, **login)))
        return made[-1]

    yield connect
    for one in made:
        one.close()


@pytest.fixture
def told(start_redis, connect):
    """The facts that a server with this configuration reports."""
    return lambda *config: Facts.ask(connect(start_redis(*config)))


def saying(info=(), config=(), hello=()):
    """Facts of a server in a state that a test cannot cause."""
    return Facts(
        hello={"server": "redis", "version": "7.0.15", "mode": "standalone", **dict(hello)},
        info={"role": "master", **dict(info)},
        config=dict(config),
    )


def ok(found):
    return "ok", found, ""


def warning(found, advice):
    return "warning", found, advice


def error(found, advice):
    return "error", found, advice


def lines(found):
    return [astuple(line)[1:] for line in found]


# Its kind.


def test_each_server_tells_its_product_and_version(each_redis, connect):
    server = Facts.ask(connect(each_redis))

    product = "Valkey" if "valkey" in each_redis.binary else "Redis"
    assert server.version == f"{product} {'.'.join(map(str, each_redis.version))}"
    assert server.is_replica is False
    assert server.policy == "noeviction"
    assert server.maxmemory == 0
    assert server.used > 100_000
    assert server.has_log is False
    assert {*server.config} == {
        "save", "appendfsync", "stop-writes-on-bgsave-error", "min-replicas-to-write"
    }  # fmt: skip


def test_a_fact_that_a_user_may_not_ask_for_is_unknown(redis_server, redis_url, connect):
    rule = ["on", ">p", "~*", "+@all", "-info", "-config"]
    redis_server.client().execute_command("ACL", "SETUSER", "u", "reset", *rule)

    server = Facts.ask(connect(redis_server, username="u", password="p"))

    assert (server.info, server.config) == ({}, {})
    # Redis gives every user its version.
    assert server.version
    assert server.is_replica is False
    assert (server.policy, server.maxmemory, server.used, server.has_log) == (None,) * 4
    for judge in (risks.role, risks.eviction, risks.persistence, risks.memory):
        assert [*judge(server)] == []


@pytest.mark.parametrize("command", [b"INFO", b"CONFIG", b"HELLO"])
def test_a_redis_whose_proxy_hangs_up_on_a_question_is_not_taken_for_down(redis_server, command):
    with Proxy(redis_server.port) as proxy:
        proxy.cut_after = b"\r\n%s\r\n" % command
        connection = Connection(Endpoint(host="127.0.0.1", port=proxy.port))
        server = Facts.ask(connection)
        connection.close()

    assert proxy.cuts == 1
    assert bool(server.hello) == (command != b"HELLO")
    assert bool(server.info) == (command != b"INFO")
    assert bool(server.config) == (command != b"CONFIG")


def test_a_redis_that_is_down_is_an_error():
    connection = Connection(Endpoint(host="127.0.0.1", port=free_port()))

    with pytest.raises(StoreUnavailable):
        Facts.ask(connection)


# Its role.


@pytest.fixture
def replica(start_redis):
    """A Redis that follows another one, which is away."""
    server, port = start_redis(), free_port()
    server.client().replicaof("127.0.0.1", port)
    return server, port


def test_a_replica_takes_no_writes(replica, connect):
    server, port = replica

    assert lines(risks.role(Facts.ask(connect(server)))) == [
        error(
            f"the store's Redis is a replica of 127.0.0.1:{port}: it refuses writes, so nothing "
            "can be scheduled or delivered",
            "point delayq_url, or broker_url, at the master",
        )
    ]


def test_a_replica_is_known_by_its_greeting_too(replica, connect):
    server, _ = replica
    rule = ["on", ">p", "~*", "+@all", "-info"]
    server.client().execute_command("ACL", "SETUSER", "u", *rule)

    [line] = risks.role(Facts.ask(connect(server, username="u", password="p")))

    assert line.level == "error"
    assert line.found.startswith("the store's Redis is a replica: it refuses writes")


def test_a_replica_that_keeps_up_is_counted(start_redis, connect):
    master, replica = start_redis("--repl-diskless-sync-delay", "0"), start_redis()
    connection = connect(master)
    replica.client().replicaof("127.0.0.1", master.port)

    def followed():
        [line] = risks.role(Facts.ask(connection))
        return line if line.level == "ok" and "with" in line.found.split() else None

    assert lines([eventually(followed)]) == [
        ok(
            "a master, with a replica that keeps up; a failover loses the changes that the "
            "promoted one lacks"
        )
    ]


def follower(state="online", lag="1"):
    return f"ip=10.0.0.2,port=6379,state={state},offset=1,lag={lag}"


@pytest.mark.parametrize(
    ("state", "lag", "keeps_up"),
    [("online", "10", True), ("online", "11", False), ("wait_bgsave", "0", False)],
)
def test_a_replica_that_does_not_keep_up_is_warned_of(state, lag, keeps_up):
    [line] = risks.role(saying({"slave0": follower(state, lag)}))

    expected = warning(
        "the replica 10.0.0.2:6379 of the store's Redis does not keep up (state "
        f"{state}, {lag} s behind): a failover to it loses the changes that it lacks",
        FOLLOWED,
    )
    assert line.level == ("ok" if keeps_up else "warning")
    assert keeps_up or lines([line]) == [expected]


@pytest.mark.parametrize(
    ("replicas", "wanted", "beginning"),
    [
        (0, "0", "a master without replicas"),
        (2, "0", "a master, with 2 replicas that keep up; "),
        (1, "1", "a master, with a replica that keeps up; "),
    ],
    ids=["alone", "two replicas", "the one that it wants"],
)
def test_a_master_counts_its_replicas(replicas, wanted, beginning):
    info = {f"slave{number}": follower() for number in range(replicas)}
    facts = saying({**info, "min_slaves_good_slaves": wanted}, {"min-replicas-to-write": wanted})

    [line] = risks.role(facts)

    assert (line.level, line.found[: len(beginning)]) == ("ok", beginning)


def test_a_master_that_wants_replicas_and_has_none_takes_no_writes(told):
    server = told("--min-replicas-to-write", "1")

    assert lines(risks.role(server))[0] == error(
        "the store's Redis refuses writes, as 0 of its replicas keep up, and its "
        "min-replicas-to-write is 1",
        "bring its replicas back, or lower min-replicas-to-write",
    )


def test_a_sentinel_cannot_be_the_store():
    assert lines(risks.role(saying(hello={"mode": "sentinel"}))) == [
        error(SENTINEL, "point delayq_url at the Redis itself")
    ]


# Eviction.


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ((*LRU, "--maxmemory", "100mb"), error(
            "the store's Redis deletes waiting tasks when its memory is full, as its "
            "maxmemory-policy is allkeys-lru", "set noeviction"
        )),
        (LRU, warning(
            "the store's Redis will delete waiting tasks once it has a maxmemory, as "
            "its maxmemory-policy is allkeys-lru", "set noeviction"
        )),
        (("--maxmemory-policy", "volatile-lru", "--maxmemory", "100mb"), ok(
            "no waiting task is deleted to make room: its maxmemory-policy is volatile-lru, "
            "and waiting tasks have no time to live"
        )),
        ((), ok("no waiting task is deleted to make room: its maxmemory-policy is noeviction")),
    ],
    ids=["evicts", "will evict", "volatile", "noeviction"],
)  # fmt: skip
def test_each_eviction_policy_has_its_line(told, config, line):
    assert lines(risks.eviction(told(*config))) == [line]


def test_no_key_of_a_store_in_use_has_a_time_to_live(store):
    """So a volatile policy deletes none of them."""
    shard_steps = store.steps()
    store.schedule("a")
    store.schedule_relayed("b")
    shard_steps.hand_over()
    store.take("leased", "b")
    store.entries.change("c", Removal())

    lives = {key: store.raw.ttl(key) for key in store.raw.keys("{*")}

    assert len(lives) > 5
    assert {*lives.values()} == {-1}


# Persistence.


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ((), error(
            "the store's Redis loses waiting tasks when it restarts, as it has neither an "
            "append-only file nor save points", "set appendonly yes"
        )),
        (("--save", "3600", "1"), warning(
            "the store's Redis loses tasks scheduled since its last snapshot if it crashes, "
            "and delivers again those delivered since, as it has save points (3600 1) "
            "and no append-only file", "set appendonly yes"
        )),
        (("--appendonly", "yes", "--appendfsync", "always"), ok(
            "with appendfsync always a crash loses nothing that was acknowledged"
        )),
        (("--appendonly", "yes", "--appendfsync", "everysec"), ok(
            "with appendfsync everysec a crash of the machine may lose the last second or two, "
            f"as may a kill while the disk is slow: {GONE}"
        )),
        (("--appendonly", "yes", "--appendfsync", "no"), warning(
            "the store's Redis may lose the last half minute when its machine crashes, as its "
            f"appendfsync is no: {GONE}", "set appendfsync everysec"
        )),
    ],
    ids=["nothing", "snapshots", "always", "everysec", "no"],
)  # fmt: skip
def test_each_way_to_persist_has_its_line(told, config, line):
    assert lines(risks.persistence(told(*config))) == [line]


def test_a_hosted_redis_may_not_report_how_often_it_syncs():
    found = "the store's Redis has an append-only file, and does not report how often it syncs"
    assert lines(risks.persistence(saying({"aof_enabled": "1"}))) == [ok(found)]
    # It may have save points, or none.
    assert lines(risks.persistence(saying({"aof_enabled": "0"}))) == []


def test_a_redis_that_could_not_save_takes_no_writes(start_redis, connect):
    server = start_redis("--save", "3600", "1", "--appendonly", "yes")
    client = server.client()
    (server.folder / "dump.rdb").mkdir()
    client.bgsave()
    eventually(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
    connection = connect(server)

    assert lines(risks.persistence(Facts.ask(connection)))[0] == error(
        "the store's Redis refuses writes, as it could not save its last snapshot", DISK
    )
    with pytest.raises(StoreUnavailable, match="MISCONF"):
        connection.execute("it", packed(["SET", "a", "b"]))

    client.config_set("stop-writes-on-bgsave-error", "no")
    assert lines(risks.persistence(Facts.ask(connection)))[0] == warning(
        "the store's Redis keeps older data than it should: it could not save its last snapshot",
        DISK,
    )
    connection.execute("it", packed(["SET", "a", "b"]))

    client.config_set("stop-writes-on-bgsave-error", "yes")
    client.config_set("save", "")
    assert lines(risks.persistence(Facts.ask(connection)))[0][0] == "warning"
    connection.execute("it", packed(["SET", "a", "b"]))


def test_a_disk_that_takes_no_log_is_told():
    failed = dict.fromkeys(("aof_last_write_status", "aof_last_bgrewrite_status"), "err")
    facts = saying({"aof_enabled": "1", **failed}, {"appendfsync": "always"})

    assert lines(risks.persistence(facts))[:2] == [
        error(
            "the store's Redis refuses writes, as it could not write to its append-only file", DISK
        ),
        warning(
            "the store's Redis could not rewrite its append-only file, which grows until its disk "
            "is full",
            DISK,
        ),
    ]


# Memory.


def with_memory(used, most, uncounted=0):
    told = {"used_memory": used, "maxmemory": most, "mem_not_counted_for_evict": uncounted}
    return saying({name: str(value) for name, value in told.items()})


A_TASK = "at 460 bytes each"


@pytest.mark.parametrize(
    ("used", "most", "line"),
    [
        (1_500_000, 0, ok(
            "1.5 MB are used, and there is no maxmemory; a million more tasks take 460.0 MB, "
            + A_TASK
        )),
        (900_000, 1_000_000, ok(
            f"900 kB of 1.0 MB are used; room for some 217 more tasks, {A_TASK}"
        )),
        (1_900_000_001, 2_000_000_000, warning(
            "the store's Redis is nearly full (1.9 GB of 2.0 GB are used), and has room for "
            f"some 217,391 more tasks, {A_TASK}; then nothing can be scheduled", ROOM
        )),
        (2_000_000, 2_000_000, error(
            "the store's Redis is full (2.0 MB of 2.0 MB are used), so nothing can be scheduled",
            ROOM
        )),
    ],
    ids=["unbounded", "room", "nearly full", "full"],
)  # fmt: skip
def test_how_much_memory_is_left(used, most, line):
    assert lines(risks.memory(with_memory(used, most))) == [line]
    # Buffers of replicas do not count.
    assert lines(risks.memory(with_memory(used + 500, most, 500))) == [line]


def test_a_redis_that_evicts_deletes_tasks_when_it_is_full_and_refuses_none():
    policy = {"maxmemory_policy": "allkeys-lru", "maxmemory": "1000000"}
    full = saying({**policy, "used_memory": "1000000", "evicted_keys": "2001"})
    nearly = saying({**policy, "used_memory": "950000"})

    said = [line.found for facts in (full, nearly) for line in risks.memory(facts)]

    assert [one.split(", ")[-1].split("; ")[-1] for one in said] == [
        "so waiting tasks are deleted",
        "then waiting tasks are deleted",
    ]
    assert lines(risks.eviction(full)) == [
        error(
            "the store's Redis deletes waiting tasks when its memory is full (2,001 keys deleted "
            "so far), as its maxmemory-policy is allkeys-lru",
            "set noeviction",
        )
    ]


def test_a_measured_size_is_said_to_be_one():
    [line] = risks.memory(with_memory(1_000_000, 2_000_000), 1000, "at a measured")

    assert line.found.endswith("; room for some 1,000 more tasks, at a measured 1000 bytes each")


# A worker's warnings at its start.


def test_the_warnings_and_errors_of_all_four(start_redis, connect):
    server = start_redis(*LRU, "--min-replicas-to-write", "1", "--maxmemory", "100mb")
    server.client().config_set("maxmemory", 1000)

    found = risks.risks(connect(server))

    assert [line.name for line in found] == ["replication", "eviction", "persistence", "memory"]
    assert risks.risks(connect(start_redis("--appendonly", "yes"))) == []
