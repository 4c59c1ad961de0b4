"""A node of a Redis Cluster, and a Sentinel, are refused in a sentence before anything is done."""

import logging

import pytest

from celery_delayq.errors import StoreError
from celery_delayq.handover import scanner as scanning
from celery_delayq.servers.connection import packed
from tests.app.support import FAR, LONG_AGO
from tests.support.ports import free_port
from tests.support.process import ChildProcess
from tests.support.redis_programs import redis_binaries
from tests.support.waiting import eventually

pytestmark = pytest.mark.libraries

BINARIES = [binary for _, binary in redis_binaries()] or [None]
SENTENCE = (
    "this Redis is a node of a Redis Cluster, which cannot be the store; let delayq_url name a "
    "Redis by itself"
)
ALL_SLOTS = range(16384)


@pytest.fixture(params=BINARIES)
def node(request, start_redis):
    """A node of a cluster that has all of the slots, so that it answers whatever is asked."""
    server = start_redis("--cluster-enabled", "yes", binary=request.param)
    client = server.client()
    client.execute_command("CLUSTER", "ADDSLOTS", *ALL_SLOTS)
    eventually(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"))
    return server


@pytest.fixture
def node_app(delayq_app, node):
    return delayq_app(node.url())


def test_scheduling_is_refused_and_nothing_is_written(node, node_app):
    with pytest.raises(StoreError) as caught:
        node_app.send_task("t", delayq_at=FAR)

    assert str(caught.value) == f"schedule failed: {SENTENCE}"
    assert node.client().execute_command("DBSIZE") == 0


def test_a_scanner_sets_nothing_aside_and_says_why_in_a_line(
    node, node_app, delayq_app, monkeypatch, caplog
):
    # Written by a process that was not told that this is a cluster.
    with monkeypatch.context() as patched:
        patched.setattr("celery_delayq.store.member.check_alone", lambda *_: None)
        node_app.send_task("t", task_id="a", delayq_at=LONG_AGO)
    app = delayq_app(node.url())
    scanner = app.delayq.scanner()

    with caplog.at_level(logging.INFO):
        scanner.start()
        eventually(lambda: SENTENCE in caplog.text)
        scanner.stop()

    [line] = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert line.name == scanning.__name__
    assert line.getMessage().startswith(f"hand over failed: {SENTENCE}; retrying in ")
    assert line.exc_info is None
    # Neither is anything dead, nor was anything tried and refused.
    assert node_app.delayq.get("a") is not None
    assert node_app.delayq.counts().dead == 0
    assert node.client().exists("{delayq:0}:claims") == 0


@pytest.mark.parametrize("said", ["MOVED 1 h:1", "ASK 1 h:1", "CROSSSLOT Keys in request don't"])
def test_what_a_cluster_says_of_a_key_is_a_sentence(delayq, said):
    connection = delayq.services.scripts[0].connection
    says = packed(["EVAL", "return redis.error_reply(ARGV[1])", 0, said])

    with pytest.raises(StoreError) as caught:
        connection.execute("counts", says)

    assert str(caught.value) == f"counts failed: {SENTENCE}"


def test_a_sentinel_is_refused(redis_server, delayq_app, tmp_path):
    port, conf = free_port(), tmp_path / "sentinel.conf"
    conf.write_text(f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\n")
    command = [redis_server.binary, str(conf), "--sentinel"]
    sentinel = ChildProcess(command, log=tmp_path / "log")
    try:
        sentinel.wait_log(r"Sentinel ID is")
        app = delayq_app(f"redis://127.0.0.1:{port}/0")

        with pytest.raises(StoreError) as caught:
            app.send_task("t", delayq_at=FAR)
    finally:
        sentinel.kill()

    assert (
        str(caught.value) == "schedule failed: this is a Redis Sentinel, which keeps nothing; name "
        "it by a sentinel:// URL, and its master by master_name in the transport options"
    )
