"""Redis is full, a replica, busy or silent: a typed error, no partial change, and recovery."""

import contextlib
import threading

import pytest
import redis

from celery_delayq.errors import StoreFull, StoreUnavailable
from tests.operations.table import each_operation, take_again
from tests.support.waiting import PATIENCE, eventually


@each_operation
def test_a_full_redis_refuses_only_what_takes_more_memory(on_spoilt, operation):
    store = on_spoilt.store
    before = store.snapshot()
    store.raw.config_set("maxmemory", 1)
    if operation.refused_when_full:
        with pytest.raises(StoreFull, match=rf"^{operation.name} failed: .*maxmemory") as caught:
            operation.take(on_spoilt)
        # A result backend makes an error anew from its `args`.
        assert str(StoreFull(*caught.value.args)) == str(caught.value)
        store.raw.config_set("maxmemory", 0)
        assert store.snapshot() == before
    else:
        wanted = operation.answer if operation.when_full is None else operation.when_full
        assert operation.take(on_spoilt) == wanted
        store.check()


# A Redis that takes no writes: the command for that, the one that ends it, and Redis's answer.
REPLICA = "replicaof 127.0.0.1 1", "replicaof no one", "You can't write against a read only replica"
ALONE = (
    "config set min-replicas-to-write 1", "config set min-replicas-to-write 0",
    "NOREPLICAS Not enough good replicas to write",
)  # fmt: skip


@pytest.mark.parametrize(
    ("begin", "end", "why"), [REPLICA, ALONE], ids=["a replica", "replicas are missing"]
)
@each_operation
def test_a_redis_that_takes_no_writes_is_read_or_unavailable_and_nothing_changes(
    on_spoilt, operation, begin, end, why
):
    store = on_spoilt.store
    before = store.snapshot()
    store.raw.execute_command(*begin.split())
    if operation.changes:
        with pytest.raises(StoreUnavailable, match=rf"^[\w ]+ failed: .*{why}\.$") as caught:
            operation.take(on_spoilt)
        assert not caught.value.may_have_run
    else:
        assert operation.take(on_spoilt) == operation.answer
    store.raw.execute_command(*end.split())
    assert store.snapshot() == before
    assert operation.take(on_spoilt) == operation.answer


@contextlib.contextmanager
def endless_script(server):
    """A foreign script never ends; Redis answers BUSY to all clients until it is killed."""
    somebody, killer = server.client(socket_timeout=None), server.client()

    def run():
        with contextlib.suppress(redis.RedisError):
            somebody.eval("while true do end", 0)

    thread = threading.Thread(target=run)
    thread.start()
    eventually(lambda: _is_busy(killer), message="the script runs")
    try:
        yield
    finally:
        killer.script_kill()
        thread.join(30)


def _is_busy(client):
    try:
        return not client.ping()
    except redis.ResponseError as error:
        return "BUSY" in str(error)


@each_operation
def test_while_somebody_keeps_redis_busy_it_is_unavailable(spoilt_server, on_spoilt, operation):
    busy = pytest.raises(StoreUnavailable, match=r"^[\w ]+ failed: .*BUSY")
    with endless_script(spoilt_server), busy:
        operation.take(on_spoilt)
    assert operation.take(on_spoilt) == operation.answer


@each_operation
def test_taken_again_after_its_reply_was_lost_it_leaves_what_one_call_leaves(
    spoilt_server, prepare_anew, operation, limits
):
    ready = prepare_anew()
    operation.take(ready)
    once = ready.store.contents()
    take_again(operation, ready)
    twice = ready.store.contents()
    # A second reschedule is one more change, which the record counts. (An edit compares first.)
    assert operation.script == "reschedule" or twice == once

    ready = prepare_anew()
    ready.store.raw.hset(ready.store.keys["meta"], "timeout", 60_000)
    ready.store.limit_calls(0.5)
    spoilt_server.pause()
    try:
        with limits.within(answer_s=0.5), pytest.raises(StoreUnavailable):
            operation.take(ready)
    finally:
        spoilt_server.resume()
    ready.store.limit_calls(PATIENCE)
    # By this store's clock the call has not expired, so it runs when the server resumes, at the
    # latest before Redis answers the second of these.
    ready.store.raw.ping()
    ready.store.raw.ping()
    assert ready.store.contents() == once
    take_again(operation, ready)

    assert ready.store.contents() == twice
