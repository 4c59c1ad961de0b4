"""Redis users with few rights: those that the README names suffice, and one less loses nothing."""

import re

import pytest

from celery_delayq.errors import StoreError
from tests.support.waiting import eventually
from tests.support.worker import ROOT

LONG_AGO = 1_000_000_000


@pytest.fixture
def rights():
    """The rights in the README's line for ``ACL SETUSER``."""
    text = (ROOT / "celery_delayq" / "README.md").read_text(encoding="utf-8")
    return re.search(r"^ACL SETUSER delayq on >secret (.*)$", text, re.MULTILINE)[1].split()


def complaints(caplog):
    """What this package logged besides starts and stops."""
    ours = [one for one in caplog.records if one.name.startswith("celery_delayq")]
    return [one.getMessage() for one in ours if one.levelname not in ("INFO", "DEBUG")]


@pytest.fixture
def server(start_redis):
    made = start_redis()
    made.root = made.client()
    return made


@pytest.fixture
def as_user(server, make_delayq):
    """A DelayQ whose store is reached with these rights: ``as_user(["~*", "+@all"])``."""
    scanners = []

    def make(rights, broker=None, **conf):
        server.root.execute_command("ACL", "SETUSER", "delayq", "reset", "on", ">pw", *rights)
        delayq = make_delayq(
            broker or server.url(),
            delayq_url=f"redis://delayq:pw@127.0.0.1:{server.port}/0",
            delayq_safety_interval=0.2,
            task_publish_retry=False,
            **conf,
        )
        delayq.start = lambda: scanners.append(delayq.scanner()) or scanners[-1].start()
        return delayq

    yield make
    for scanner in scanners:
        scanner.stop()


def test_the_documented_rights_suffice_for_everything(server, as_user, rights, caplog):
    delayq = as_user([*rights, "~celery"])
    delayq.start()
    moved = delayq.note.delay_for(3600)
    assert moved.reschedule(after=0)
    assert delayq.note.delay_for(3600).cancel()
    held = delayq.note.delay_for(3600)
    assert delayq.get(held.id)
    assert [task.id for task in delayq.tasks(after_due=0)][-1] == held.id
    eventually(lambda: server.root.llen("celery") == 1)
    eventually(lambda: delayq.counts().scheduled == 1)
    assert complaints(caplog) == []


def test_they_suffice_for_a_relay(server, as_user, rights, caplog):
    delayq = as_user(rights, broker="memory://")
    delayq.start()
    delayq.note.apply_async(delayq_at=LONG_AGO)
    eventually(lambda: delayq.counts().scheduled == 0)
    eventually(lambda: delayq.counts().in_flight == 0)
    assert complaints(caplog) == []


def test_they_allow_nothing_of_other_keys(server, rights):
    client = server.root
    client.execute_command("ACL", "SETUSER", "delayq", "reset", "on", ">pw", *rights)
    foreign = [("GET", "other"), ("LPUSH", "celery", "x"), ("ZADD", "{other:0}:due", 1, "a")]
    foreign += [("FLUSHALL",), ("KEYS", "*"), ("CONFIG", "GET", "*"), ("ACL", "LIST")]
    dry = [client.execute_command("ACL", "DRYRUN", "delayq", *command) for command in foreign]
    assert b"OK" not in dry


def test_without_the_right_to_the_queues_list_nothing_is_lost(server, as_user, rights):
    delayq = as_user(rights)
    for number in range(3):
        delayq.note.apply_async(task_id=f"{number}", delayq_at=LONG_AGO)
    delayq.start()
    eventually(lambda: server.root.zcard("{delayq:0}:scanners"))
    eventually(lambda: delayq.counts().dead == 3 or delayq.counts().scheduled == 3)
    assert [delayq.get(f"{number}") is not None for number in range(3)] == [True] * 3
    assert server.root.llen("celery") == 0
    # With the right given, they go.
    server.root.execute_command("ACL", "SETUSER", "delayq", "~celery")
    for number in range(3):
        delayq.reschedule(f"{number}", after=0)
    eventually(lambda: server.root.llen("celery") == 3)


INNER = ["zadd", "zrem", "hset", "hdel", "lpush", "zremrangebyrank", "hlen", "zrange", "zcard"]


@pytest.mark.parametrize("missing", INNER)
def test_without_one_inner_right_nothing_is_lost(server, as_user, rights, missing):
    """Lua does not roll back: what a script did before it met the missing right is done."""
    full = [*rights, "~celery"]
    delayq = as_user(full)
    ids = {delayq.note.apply_async(task_id=f"{n}", delayq_at=LONG_AGO).id for n in range(5)}
    server.root.execute_command("ACL", "SETUSER", "delayq", f"-{missing}")
    engine = delayq.scanner()._engine
    for _ in range(2):
        try:
            engine.hand_over()
        except StoreError:
            continue
    server.root.execute_command("ACL", "SETUSER", "delayq", f"+{missing}")
    engine.hand_over()
    raw = server.root.lrange("celery", 0, -1)
    arrived = {re.search(rb'"id": "(\d)"', one)[1].decode() for one in raw}
    waiting = {one for one in ids if delayq.get(one)}
    assert arrived | waiting == ids, "lost"


@pytest.mark.parametrize("missing", ["zscore", "hget", "hlen", "hdel", "hincrby", "hset", "zrem"])
def test_a_cancel_without_one_inner_right_says_so_and_loses_nothing(
    server, as_user, rights, missing
):
    delayq = as_user([*rights, "~celery"])
    for task_id in ("first", "held"):
        delayq.note.apply_async(task_id=task_id, delayq_at=LONG_AGO)
    server.root.execute_command("ACL", "SETUSER", "delayq", f"-{missing}")
    with pytest.raises(StoreError):
        delayq.cancel("held")
    server.root.execute_command("ACL", "SETUSER", "delayq", f"+{missing}")
    delayq.scanner()._engine.hand_over()
    assert server.root.llen("celery") == 2
