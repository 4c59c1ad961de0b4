"""A scanner whose Redis user has few rights; operations/ tests each operation on its own."""

import pytest

from tests.operations.restricted import documented
from tests.support.waiting import eventually

LONG_AGO = 1_000_000_000


@pytest.fixture
def rights():
    """The rights in the documentation's line for ``ACL SETUSER``, without the password."""
    return [right for right in documented() if right not in ("on", ">secret")]


def complaints(caplog):
    """This package's log lines besides starts and stops."""
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


def test_the_documented_rights_suffice_for_a_relay(server, as_user, rights, caplog):
    delayq = as_user(rights, broker="memory://")
    delayq.start()
    delayq.note.apply_async(delayq_at=LONG_AGO)
    eventually(lambda: delayq.counts().scheduled == 0)
    eventually(lambda: delayq.counts().in_flight == 0)
    assert complaints(caplog) == []


def test_the_documented_rights_allow_nothing_of_other_keys(server, rights):
    client = server.root
    client.execute_command("ACL", "SETUSER", "delayq", "reset", "on", ">pw", *rights)
    foreign = [("GET", "other"), ("LPUSH", "celery", "x"), ("ZADD", "{other:0}:due", 1, "a")]
    foreign += [("FLUSHALL",), ("KEYS", "*"), ("CONFIG", "GET", "*"), ("ACL", "LIST")]
    dry = [client.execute_command("ACL", "DRYRUN", "delayq", *command) for command in foreign]
    assert b"OK" not in dry


def test_without_the_right_to_the_queues_list_all_wait_and_none_is_dead(
    server, as_user, rights, caplog
):
    delayq = as_user(rights)
    for number in range(3):
        delayq.note.apply_async(task_id=f"{number}", delayq_at=LONG_AGO)
    delayq.start()
    eventually(lambda: any("3 tasks were refused by their list" in one for one in caplog.messages))
    assert (delayq.counts().scheduled, delayq.counts().dead) == (3, 0)
    assert [delayq.get(f"{number}") is not None for number in range(3)] == [True] * 3
    assert server.root.llen("celery") == 0
    # With the right given, they go.
    server.root.execute_command("ACL", "SETUSER", "delayq", "~celery")
    for number in range(3):
        delayq.reschedule(f"{number}", after=0)
    eventually(lambda: server.root.llen("celery") == 3)
