"""What a Redis user may not do is found out by trying, named, and leaves nothing behind."""

import re

import pytest

from celery_delayq.errors import StoreUnavailable
from celery_delayq.servers import Endpoint, PooledConnection
from celery_delayq.store import Keys
from celery_delayq.store import rights as trials
from celery_delayq.store.rights import Rights, called, rights
from tests.operations.restricted import documented
from tests.support.ports import free_port

KEYS = Keys("delayq")
# A connection without a name does as well, and a refused PING is a sign of life.
NOT_MISSED = ("+client|setname", "+ping")
RIGHTS = [word for word in documented() if word.startswith("+")]
SCRATCH = r"no key that begins with {delayq:doctor-\w{8}:0} may be used"


@pytest.fixture
def missing():
    """What a user lacks that has the documented rights and *rule*: ``missing(server, "-zadd")``."""

    def missing(server, *rule, lists=("celery",), shards=(KEYS,), db=3):
        root = server.client(db=db)
        # Redis 6.2 cannot take a part of a command away.
        rights_left = [word for word in documented() if f"-{word[1:]}" not in rule]
        user = ["reset", *rights_left, "~celery", *(word for word in rule if word[0] != "-")]
        root.execute_command("ACL", "SETUSER", "delayq", *user)
        endpoint = Endpoint(path=server.socket, db=db, username="delayq", password="secret")
        connection = PooledConnection(endpoint)
        try:
            return rights(connection, [*shards], [*lists])
        finally:
            connection.close()
            assert root.keys("*") == []
            assert root.pubsub_channels() == []

    return missing


def test_the_documented_rights_are_all_that_is_needed(each_redis, missing):
    assert missing(each_redis) == Rights()


@pytest.mark.parametrize("right", RIGHTS)
def test_each_right_that_is_missing_is_named_and_no_other(each_redis, missing, right):
    found = missing(each_redis, f"-{right[1:]}")

    assert found.commands == ([] if right in NOT_MISSED else [right[1:]])
    assert (found.keys, found.channels) == ([], [])
    untried = {"+select": "no connection can be opened", "+eval": "no script can run"}
    assert found.untried == untried.get(right, "")


def test_what_is_tried_is_what_scripts_call():
    assert called() == sorted(trials._CALLS)


def test_of_several_rights_each_is_named(redis_server, redis_url, missing):
    found = missing(redis_server, "-zadd", "-hset", "-publish", "-evalsha")

    assert sorted(found.commands) == ["evalsha", "hset", "publish", "zadd"]


def test_without_the_rights_to_remove_nothing_is_written(redis_server, redis_url, missing):
    found = missing(redis_server, "-del", "-unlink", "-zadd")

    assert sorted(found.commands) == ["del", "unlink"]
    assert found.untried == "what they write in a trial could not be removed"


def test_by_either_right_what_is_written_is_removed(redis_server, redis_url, missing):
    # The fixture looks whether a key is left.
    for kept in ("del", "unlink"):
        gone = ("del", "unlink")[kept == "del"]
        assert missing(redis_server, f"-{gone}", "-hdel", "-zrem", "-ltrim").commands[0] == gone


def test_a_list_that_cannot_be_pushed_to_is_named(each_redis, missing):
    found = missing(each_redis, lists=["celery", "mail", "celery\x06\x163"])

    assert found == Rights(keys=["mail", "celery\x06\x163"])


def test_a_key_that_cannot_be_used_is_named(each_redis, missing):
    found = missing(each_redis, "resetkeys", "~{delayq:*}:[^t]*", "~celery", "~{delayq:*}:tags")

    assert found.keys == [
        f"{{delayq:0}}:{name}"
        for name in ("templates", "template_uses", "tombstones", "tombstones_old", "timer")
    ]


def test_without_scratch_keys_commands_are_not_tried(each_redis, missing):
    found = missing(each_redis, "resetkeys", "~{delayq:0}:*", "~celery", "-zadd")

    assert (found.keys, found.commands) == ([], [])
    assert re.fullmatch(SCRATCH, found.untried)


def test_the_keys_of_each_shard_are_tried(redis_server, redis_url, missing):
    shards = [Keys("delayq", shard, 2) for shard in range(2)]
    tag = shards[0]["due"].partition("}")[0]

    found = missing(redis_server, "resetkeys", "~celery", "~{delayq:doctor*", f"~{tag}}}*",
                    shards=shards)  # fmt: skip

    assert found.keys == shards[1].names


def test_channels_that_cannot_be_used_are_named(each_redis, missing):
    found = missing(each_redis, "resetchannels")

    assert (found.commands, found.keys) == ([], [])
    assert [re.sub(r"-\w{8}$", "", one) for one in sorted(found.channels)] == [
        "{delayq:0}:wake",
        "{delayq:0}:wake:doctor",
    ]


def test_to_publish_and_to_subscribe_are_told_apart(each_redis, missing):
    assert missing(each_redis, "-publish") == Rights(commands=["publish"])
    assert missing(each_redis, "-subscribe") == Rights(commands=["subscribe"])


def test_no_scanner_hears_of_a_trial(redis_server, redis_url, missing):
    listener = redis_server.client(db=3).pubsub()
    listener.psubscribe("*")
    assert listener.get_message(timeout=30)["type"] == "psubscribe"

    missing_client = PooledConnection(Endpoint(path=redis_server.socket, db=3))
    rights(missing_client, [KEYS], ["celery"])
    missing_client.close()

    # What it says, it says to a scanner that is none.
    heard = listener.get_message(timeout=30)
    assert re.fullmatch(rb"{delayq:0}:wake:doctor-\w{8}", heard["channel"])
    assert listener.get_message(timeout=0.05) is None
    listener.close()


@pytest.mark.parametrize("trouble", ["full", "replica"])
def test_a_server_s_own_trouble_is_no_missing_right(start_redis, missing, trouble):
    server = start_redis()
    if trouble == "full":
        server.client().config_set("maxmemory", 1)
    else:
        server.client().replicaof("127.0.0.1", free_port())

    assert missing(server) == Rights()


def test_one_that_is_away_is_an_error():
    connection = PooledConnection(Endpoint(host="127.0.0.1", port=free_port()))

    with pytest.raises(StoreUnavailable):
        rights(connection, [KEYS], [])
