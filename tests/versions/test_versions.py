"""A roll-out: processes of two versions on one store, at once."""

import json
from collections import Counter
from signal import SIGTERM

import pytest

from celery_delayq import DelayQ, Outcome
from celery_delayq.core.store import scripts
from celery_delayq.core.store.scripts import load
from celery_delayq.errors import UnreadableRecord
from tests.app.support import FAR, LONG_AGO
from tests.support.process import ChildProcess
from tests.support.waiting import eventually
from tests.versions import copies

COUNT = 300  # tasks that each caller schedules
ALLOWED = 120  # seconds for a process to finish its work, which is some seconds of CPU


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """Folders of copies, by their difference."""
    changes = {
        "scripts": copies.OTHER_SCRIPTS,
        "records": copies.OTHER_RECORDS,
        "layout": copies.OTHER_LAYOUT,
    }
    return {name: copies.make(tmp_path_factory.mktemp(name), one) for name, one in changes.items()}


@pytest.fixture
def start(redis_url, tmp_path):
    """Start a process of some version in a role: ``start(folder, "caller", "old", "10")``."""
    started = []

    def start(folder, *words):
        first = copies.PACKAGE.parent if folder is None else folder
        log = tmp_path / f"{len(started)}.log"
        command = copies.command("role.py", str(first), redis_url, *words)
        started.append(ChildProcess(command, log=log, env=copies.environment(folder), cwd=tmp_path))
        return started[-1]

    yield start
    for process in started:
        process.kill()


def said(process):
    """The output of a process that has ended well."""
    process.wait(ALLOWED)
    assert process.exit_status == 0, process.lines
    # The log goes to the same place.
    answers = [line for line in process.lines if not line.startswith("no scanner is alive")]
    return [json.loads(line) for line in answers if line[:1] in '[{"ntf0123456789']


@pytest.fixture
def told(start):
    """The outcomes of steps that a process of some version took, one after the other."""
    return lambda folder, *steps: said(start(folder, "told", json.dumps(steps)))


@pytest.fixture
def redis(redis_server, redis_url):
    with redis_server.client() as client:
        yield client


@pytest.fixture
def delayq(make_app, redis_url):
    delayq = DelayQ(make_app(redis_url, delayq_shards=1))
    yield delayq
    delayq.close()


def pushed(redis):
    return Counter(json.loads(one)["headers"]["id"] for one in redis.lrange("celery", 0, -1))


def test_a_copy_with_other_scripts_is_one(versions, monkeypatch):
    ours = load()
    folder = versions["scripts"] / "celery_delayq" / "core" / "store" / "lua"
    monkeypatch.setattr(scripts, "_FOLDER", folder)
    for cached in ("prelude", "loaded"):
        monkeypatch.setattr(scripts, cached, getattr(scripts, cached).__wrapped__)
    theirs = load.__wrapped__()

    # Except for the few that need neither the time nor the form of a record.
    changed = {name for name in ours if ours[name].sha != theirs[name].sha}
    assert changed >= {"schedule", "cancel", "reschedule", "edit", "find", "hand_over", "claim"}


# Four processes, and due times spread over two seconds.
def test_with_other_scripts_alone_each_task_goes_exactly_once(versions, start, delayq, redis):
    scanners = [start(folder, "scanner") for folder in (None, versions["scripts"])]
    for scanner in scanners:
        scanner.wait_log("scanning", ALLOWED)

    callers = {
        name: start(folder, "caller", name, f"{COUNT}")
        for name, folder in (("old", None), ("new", versions["scripts"]))
    }
    cancelled = [one for caller in callers.values() for one in said(caller)[0]]

    eventually(lambda: not delayq.counts().scheduled)
    ids = {f"{name}-{number}" for name in callers for number in range(COUNT)}
    assert len(cancelled) == len({*cancelled}) > 0  # few, on a slow machine
    assert pushed(redis) == Counter(ids - {*cancelled})
    assert not [*delayq.check()]
    for scanner in scanners:
        assert scanner.stop(SIGTERM, ALLOWED) == 0, scanner.lines


def test_a_record_of_a_later_version_is_left_alone(versions, told, delayq, redis):
    new = versions["records"]
    told(new, ["schedule", "due", LONG_AGO], ["schedule", "far", FAR])
    records = redis.hgetall("{delayq:0}:records")
    assert {text[:1] for text in records.values()} == {b"2"}
    delayq.app.send_task("t", task_id="ours", delayq_at=LONG_AGO)

    assert delayq.hand_over() == 1

    # Due tasks are dead, whole; the others wait. No process of this version reaches either.
    for step in (delayq.get, delayq.cancel, delayq.reschedule, delayq.edit):
        words = {"reschedule": {"at": FAR}, "edit": {"args": ()}}.get(step.__name__, {})
        for task_id in ("due", "far"):
            with pytest.raises(UnreadableRecord, match='record format "2" is unknown'):
                step(task_id, **words)
    assert delayq.select(all=True).cancel() == 0
    with pytest.raises(ValueError, match="already scheduled"):
        delayq.app.send_task("t", task_id="far", delayq_at=FAR)
    (dead,) = delayq.select(state="DEAD")
    assert (dead.id, dead.error) == ("due", 'record format "2" is unknown')
    assert {line["id"]: line["kind"] for line in delayq.dump() if "id" in line} == {
        "due": "unreadable", "far": "unreadable",
    }  # fmt: skip
    assert redis.hgetall("{delayq:0}:records") == records
    assert pushed(redis) == {"ours": 1}

    # The other version recovers it.
    retried, cancelled, handed_over = told(new, ["retry", "due"], ["cancel", "far"], ["hand_over"])

    assert (retried, cancelled, handed_over) == ("done", "done", 1)
    assert pushed(redis) == {"ours": 1, "due": 1}
    assert not [*delayq.check()]


def test_a_later_version_deals_with_what_this_one_wrote(versions, told, delayq, redis):
    for name, when in (("due", LONG_AGO), ("far", FAR), ("cancelled", FAR)):
        delayq.app.send_task("t", task_id=name, delayq_at=when, delayq_tags=["x"])

    came = told(
        versions["records"], ["reschedule", "far", FAR + 5], ["cancel", "cancelled"], ["hand_over"]
    )

    assert came == ["done", "done", 1]
    assert pushed(redis) == {"due": 1}
    # It still has the format that it was written in, so this version can read it too.
    assert delayq.get("far").due.timestamp() == FAR + 5
    assert delayq.cancel("far") is Outcome.DONE


# The content of all the store's keys, without the reports of live scanners.
def contents(redis):
    return {key: redis.dump(key) for key in redis.keys("*")}


def test_another_layout_is_refused_and_changes_nothing(versions, told, start, delayq, redis):
    other = versions["layout"]
    delayq.app.send_task("t", task_id="due", delayq_at=LONG_AGO)
    before = contents(redis)

    steps = [["schedule", "theirs", FAR], ["cancel", "due"], ["reschedule", "due", FAR]]
    refusals = told(other, *steps, ["get", "due"], ["status"], ["dump"], ["hand_over"])

    assert [one["error"] for one in refusals] == ["StoreDiffers"] * 7
    assert "the store has layout '1', this process '2'" in refusals[0]["said"]
    assert contents(redis) == before


def test_a_scanner_of_another_layout_hands_nothing_over(versions, start, delayq, redis):
    delayq.app.send_task("t", task_id="due", delayq_at=LONG_AGO)
    before = contents(redis)
    scanner = start(versions["layout"], "scanner")
    scanner.wait_log("the store has layout '1', this process '2'", ALLOWED)
    assert contents(redis) == before
    assert delayq.hand_over() == 1
