"""A roll-out: processes of two versions on one store, at once."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from signal import SIGTERM
from threading import Event

import pytest

from celery_delayq import DelayQ, Outcome
from celery_delayq.contrib import rule_store
from celery_delayq.contrib.care.migration import format_of, upgrade
from celery_delayq.contrib.care.migration import formats as formats_of
from celery_delayq.contrib.rules import beside_scanner, face
from celery_delayq.errors import InvalidOption
from tests.app.support import FAR, LONG_AGO
from tests.app.test_canvas import run_message
from tests.support.process import ChildProcess
from tests.support.waiting import eventually
from tests.versions import copies

COUNT = 300  # tasks that each caller schedules
RECORDS = "{delayq:0}:records"
RULES, RULES_NEXT = "{delayq:0}:rules", "{delayq:0}:rules_next"
SECOND_OF_TWO = "{delayq:2.1.1}:meta"
SHOP = """\
from celery import Celery
from celery_delayq import DelayQ
app = Celery("shop", broker={url!r})
app.conf.delayq_shards = 1
DelayQ(app)
"""
ALLOWED = 120  # seconds for a process to finish its work, which is some seconds of CPU


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """Folders of copies, by their difference."""
    changes = {
        "records": copies.OTHER_RECORDS,
        "layout": copies.OTHER_LAYOUT,
        "data": copies.ADDED_DATA,
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
def command(redis_url, tmp_path):
    """Run a command with some version: ``command(folder, "upgrade")``; its status and output."""
    (tmp_path / "shop.py").write_text(SHOP.format(url=redis_url), encoding="utf-8")

    def command(folder, *words):
        line = [sys.executable, "-m", "celery", "-A", "shop", "delayq", *words]
        ran = subprocess.run(
            line,
            env={**os.environ, **copies.environment(folder)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=ALLOWED,
            check=False,
        )
        return ran.returncode, ran.stdout.strip() or ran.stderr

    return command


@pytest.fixture
def redis(redis_server, redis_url):
    with redis_server.client() as client:
        yield client


@pytest.fixture
def delayq(make_app, redis_url):
    delayq = DelayQ(make_app(redis_url, delayq_shards=1, delayq_undo=(3600, 100)))
    yield delayq
    delayq.close()


def pushed(redis):
    return Counter(json.loads(one)["headers"]["id"] for one in redis.lrange("celery", 0, -1))


@pytest.fixture
def new(versions, told, delayq):
    """The later release, in a store of which it has raised the format."""
    delayq.cancel("nobody")  # this release has made the store
    assert told(versions["records"], ["upgrade"]) == ["2"]
    return versions["records"]


def formats(redis):
    return {task_id.decode(): text[:1] for task_id, text in redis.hgetall(RECORDS).items()}


def test_a_later_release_writes_this_format_until_its_own_is_raised(versions, told, delayq, redis):
    delayq.cancel("nobody")
    told(versions["records"], ["schedule", "before", FAR])
    told(versions["records"], ["upgrade"], ["schedule", "after", FAR])

    assert formats(redis) == {"before": b"1", "after": b"2"}
    # A store that it makes is its own.
    redis.flushall()
    told(versions["records"], ["schedule", "alone", FAR])
    assert formats(redis) == {"alone": b"2"}


def test_a_format_is_not_raised_while_a_scanner_cannot_read_it(
    versions, told, command, start, delayq
):
    new = versions["records"]
    scanner = start(None, "scanner")
    scanner.wait_log("scanning", ALLOWED)

    status, says = command(new, "upgrade")
    assert status == 1
    assert says.startswith("tasks and rules keep format 1: 1 scanner cannot read 2: ")
    assert told(new, ["schedule", "a", FAR]) == ["a"]
    assert scanner.stop(SIGTERM, ALLOWED) == 0
    status, asks = command(new, "upgrade")
    assert status == 1
    assert "store tasks and rules in format 2 from now on? There is no terminal to confirm" in asks
    assert format_of(delayq.services.scripts) == "1"
    raised = (0, "tasks and rules may have format 2, the newest that this release knows")
    assert command(new, "upgrade", "--yes") == raised
    # Nor lowered.
    assert upgrade(delayq.services) == "2"
    assert delayq.get("a")


def test_a_format_counts_as_raised_once_each_shard_has_it(make_app, redis_url, redis):
    delayq = DelayQ(make_app(redis_url, delayq_shards=2))
    delayq.cancel("nobody")
    # An upgrade that was interrupted.
    redis.hset(SECOND_OF_TWO, "format", "2")

    assert upgrade(delayq.services) == "1"
    assert format_of(delayq.services.scripts) == "2"
    delayq.close()


def test_doctor_says_that_a_format_can_be_raised_and_then_that_it_is(versions, command, delayq):
    delayq.cancel("nobody")
    new = versions["records"]

    def line():
        return [one for one in command(new, "doctor")[1].splitlines() if " format " in one]

    (before,) = line()
    command(new, "upgrade", "--yes")
    (after,) = line()

    assert "tasks and rules have format 1, and each scanner reads 2" in before
    assert "tasks and rules have format 2, and each scanner reads it" in after


def test_a_scanner_that_is_too_old_says_so(new, start, delayq):
    scanner = start(None, "scanner")

    scanner.wait_log("may have format 2, and this release reads formats up to 1", ALLOWED)

    def says():
        return [line.found for line in formats_of(delayq.services) if line.level != "ok"]

    eventually(lambda: says() and says()[0].endswith("reads none of format 2"))
    assert scanner.stop(SIGTERM, ALLOWED) == 0


def test_an_older_release_finds_moves_and_cancels_what_a_later_one_wrote(new, told, delayq, redis):
    steps = [["schedule", name, FAR, f"key of {name}"] for name in ("a", "b", "c")]
    told(new, *steps)

    assert delayq.reschedule("a", FAR + 5) is Outcome.DONE
    assert delayq.cancel("b") is Outcome.DONE
    assert delayq.cancel(key="key of c") is Outcome.DONE

    # Their keys are free, nothing of them is left, and what was moved is whole.
    told(new, *steps[1:])
    assert set(formats(redis)) == {"a", "b", "c"}
    assert not [*delayq.check()]
    assert told(new, ["run_now", "a"], ["hand_over"]) == ["done", 1]
    assert pushed(redis) == {"a": 1}


def test_an_older_release_takes_its_cancel_of_what_a_later_one_wrote_back(new, told, delayq, redis):
    told(new, ["schedule", "a", FAR, "key"])

    assert delayq.cancel("a") is Outcome.DONE
    assert not formats(redis)
    assert delayq.undo("a").timestamp() == FAR

    assert formats(redis) == {"a": b"2"}
    assert told(new, ["run_now", "a"], ["hand_over"]) == ["done", 1]
    assert pushed(redis) == {"a": 1}


def test_a_later_release_releases_tasks_of_both_formats(new, told, delayq, redis):
    delayq.app.send_task("t", task_id="ours", delayq_at=FAR)
    told(new, ["schedule", "theirs", FAR])

    assert told(new, ["release"], ["hand_over"]) == [2, 2]
    assert pushed(redis) == {"ours": 1, "theirs": 1}


def test_a_due_task_of_a_later_release_waits_aside_and_holds_nothing_up(new, told, delayq, redis):
    told(new, *(["schedule", name, LONG_AGO] for name in ("a", "cancelled", "moved")))
    told(new, ["schedule", "unmoved", LONG_AGO, "key"])
    delayq.app.send_task("t", task_id="ours", delayq_at=LONG_AGO)

    assert (delayq.hand_over(), delayq.hand_over()) == (1, 0)

    counts = delayq.counts()
    assert (counts.paused, counts.dead, counts.overdue) == (4, 0, 0)
    assert delayq.cancel("cancelled") is Outcome.DONE
    assert delayq.reschedule("moved", FAR) is Outcome.DONE
    assert not [*delayq.check()]
    assert told(new, ["hand_over"]) == [2]
    assert pushed(redis) == {"ours": 1, "a": 1, "unmoved": 1}
    assert not [*delayq.check()]


def test_as_many_as_were_laid_aside_are_taken_up_at_once(new, start, delayq, redis):
    assert said(start(new, "bulk", "a", "1100", f"{LONG_AGO}", f"{LONG_AGO + 1}")) == [1100]
    while delayq.counts().overdue:
        delayq.hand_over()
    assert delayq.counts().paused == 1100

    scanner = start(new, "scanner")

    eventually(lambda: redis.llen("celery") == 1100)
    assert scanner.stop(SIGTERM, ALLOWED) == 0
    assert delayq.counts().paused == 0


# As in a deploy: both releases at once, the old one goes, the format is raised.
def test_in_a_roll_out_each_task_goes_exactly_once(versions, start, told, delayq, redis):
    new, cancelled = versions["records"], []
    old_scanner, new_scanner = (start(folder, "scanner") for folder in (None, new))
    for scanner in (old_scanner, new_scanner):
        scanner.wait_log("scanning", ALLOWED)
    callers = [
        start(folder, "caller", name, f"{COUNT}") for name, folder in (("old", None), ("new", new))
    ]
    cancelled += [one for caller in callers for one in said(caller)[0]]
    assert old_scanner.stop(SIGTERM, ALLOWED) == 0
    assert told(new, ["upgrade"]) == ["2"]
    # An old process that still runs changes what it can.
    callers = [start(new, "caller", "late", f"{COUNT}"), start(None, "caller", "last", f"{COUNT}")]
    cancelled += [one for caller in callers for one in said(caller)[0]]

    eventually(lambda: not delayq.counts().scheduled)
    ids = {f"{name}-{number}" for name in ("old", "new", "late", "last") for number in range(COUNT)}
    assert len(cancelled) == len({*cancelled}) > 0
    assert pushed(redis) == Counter(ids - {*cancelled})
    assert not delayq.counts().dead
    assert not [*delayq.check()]
    assert new_scanner.stop(SIGTERM, ALLOWED) == 0


@pytest.mark.thorough
@pytest.mark.timeout(400)
def test_a_roll_out_and_the_way_back_lose_and_double_nothing_under_load(
    versions, start, told, delayq, redis
):
    new, now = versions["records"], time.time()
    ids = Counter()

    def stream(folder, name, rate, seconds):
        ids.update(f"{name}-{number}" for number in range(rate * seconds))
        return start(folder, "stream", name, f"{rate}", f"{seconds}")

    def scanners(folder, count):
        started = [start(folder, "scanner") for _ in range(count)]
        for scanner in started:
            scanner.wait_log("scanning", ALLOWED)
        return started

    bulk = start(None, "bulk", "bulk", "100000", f"{now + 30}", f"{now + 90}")
    ids.update(f"bulk-{number}" for number in range(100_000))
    assert said(bulk) == [100_000]
    old = scanners(None, 2)
    streams = [stream(None, "old", 250, 40), stream(new, "new", 250, 40)]
    # Half of the scanners are new.
    later = scanners(new, 2)
    old.pop().kill()
    Event().wait(8)
    # Back, before the raise.
    for scanner in later:
        scanner.kill()
    Event().wait(4)
    # Forward again.
    later = scanners(new, 2)
    assert old.pop().stop(SIGTERM, ALLOWED) == 0
    eventually(lambda: told(new, ["upgrade"]) == ["2"])  # the killed one counts as alive a while
    streams.append(stream(new, "raised", 500, 10))

    for one in streams:
        said(one)
    eventually(lambda: not delayq.counts().scheduled, timeout=200)
    assert pushed(redis) == ids
    assert (delayq.counts().dead, delayq.counts().paused) == (0, 0)
    assert not [*delayq.check()]
    for scanner in later:
        assert scanner.stop(SIGTERM, ALLOWED) == 0


def test_an_older_release_keeps_what_a_later_one_adds_to_an_entry(versions, told, delayq, redis):
    later, tags = versions["data"], ["x", "colour:blue"]
    delayq.cancel("nobody")  # this release has made the store
    dues = {"due": LONG_AGO, "changed": FAR, "undone": FAR}
    told(later, *(["schedule", name, due, f"key of {name}", tags] for name, due in dues.items()))
    told(later, ["group", LONG_AGO, "part", tags])

    assert delayq.hand_over() == 2
    run_message(delayq.app, *(one for one in redis.lrange("celery", 0, -1) if b"launch" in one))
    assert delayq.get("part").tags == delayq.get("changed").tags == ("x",)
    assert delayq.edit("changed", kwargs={"n": 1}) is Outcome.DONE
    assert delayq.reschedule("changed", FAR + 1) is Outcome.DONE
    assert delayq.cancel("undone") is Outcome.DONE
    assert delayq.undo("undone").timestamp() == FAR
    lines = [json.dumps(line) for line in delayq.dump()]
    redis.flushall()
    assert told(None, ["load", lines], ["check"])[1:] == [[]]

    names = ("changed", "undone", "part")
    assert told(later, *(["tags", name] for name in names)) == [tags] * len(names)
    assert told(later, ["release"], *(["tags", name] for name in names)) == [3, *[tags] * 3]


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


YEAR = 365 * 86_400
TROUBLE = "it has format 2, and this release reads formats up to 1"


@pytest.fixture
def theirs(new, told):
    """A later release, which has set two rules of its format."""
    told(new, *(["every", name, YEAR] for name in ("r", "other")), ["write"])
    return new


def write(delayq):
    """Let this release's writer look, and look again; return after how many seconds it rests."""
    return [beside_scanner(delayq.app).write() for _ in range(3)][-1]


def change(delayq, *steps, rules=("r", "other")):
    """Change the rules of the later release with this one; return whether it could."""
    return all(face.change(delayq.services, rule, step) for rule in rules for step in steps)


def waiting(delayq, *rules):
    return [delayq.select(tag=f"every:{rule}").count() for rule in rules or ("r", "other")]


def test_a_writer_leaves_a_rule_of_a_later_release_to_one_that_reads_it(theirs, told, delayq):
    assert change(delayq, "pause", "resume")  # so each lacks its next run
    delayq.every("ours", delayq.app.signature("ours"), YEAR)

    assert write(delayq) > 0  # it does not look at theirs again and again

    assert (waiting(delayq), waiting(delayq, "ours")) == ([0, 0], [1])
    assert delayq.counts().troubled_rules == 0
    told(theirs, ["write"])
    assert waiting(delayq) == [1, 1]


def test_rules_of_a_later_release_hold_up_none_of_this_one(theirs, start, delayq):
    assert change(delayq, "pause", "resume")
    delayq.every("the last", delayq.app.signature("t"), YEAR)
    delayq.select(tag="every:the last").cancel()
    for step in ("pause", "resume"):  # without the look that follows: all three are due now
        rule_store.change(delayq.services.entries.shards[0], "the last", step)

    scanner = start(None, "scanner")

    # A writer that were content with what it met first would rest half a minute after each.
    eventually(lambda: waiting(delayq, "the last") == [1])
    assert waiting(delayq) == [0, 0]
    assert scanner.stop(SIGTERM, ALLOWED) == 0


def test_an_older_release_pauses_resumes_and_removes_a_rule_of_a_later_one(theirs, told, delayq):
    assert waiting(delayq) == [1, 1]

    assert change(delayq, "pause")
    told(theirs, ["write"])
    assert waiting(delayq) == [0, 0]
    assert change(delayq, "resume", rules=["r"])
    assert change(delayq, "remove", rules=["other"])
    told(theirs, ["write"])

    assert waiting(delayq) == [1, 0]
    assert delayq.counts().rules == 1


def test_an_older_release_names_the_rules_of_a_later_one_and_says_why(theirs, command, delayq):
    status, said = command(None, "rules", "list", "--json")

    assert (status, delayq.rules()) == (0, [])
    assert said.splitlines() == [
        f"rule {name} cannot be read: {TROUBLE}" for name in ("other", "r")
    ]
    with pytest.raises(InvalidOption, match="that this version can read"):
        delayq.rule("r")


def test_a_rule_that_no_living_writer_reads_is_late(theirs, command, delayq, redis):
    change(delayq, "pause", "resume")
    write(delayq)
    assert not [one for one in delayq.health() if "rule" in one]
    for name, aside in redis.zrange(RULES_NEXT, 0, -1, withscores=True):
        redis.zadd(RULES_NEXT, {name: aside - 100_000})

    (late,) = [one for one in delayq.health() if "rule" in one]

    assert late.startswith("a recurring rule should have written its next run 1 min 4")
    assert f"r: {TROUBLE}" in command(None, "doctor")[1]


def test_an_older_release_that_says_its_rule_again_leaves_a_rule_of_a_later_one(
    theirs, delayq, redis
):
    before = redis.hgetall(RULES)

    rule = delayq.every("r", delayq.app.signature("r"), YEAR)

    assert (rule.name, rule.schedule) == ("r", f"every {YEAR} s")
    assert (redis.hgetall(RULES), waiting(delayq)) == (before, [1, 1])


def test_another_rule_of_this_release_takes_the_place_of_one_of_a_later(theirs, delayq):
    rule = delayq.every("r", delayq.app.signature("r", (1,)), YEAR, replace=True)
    write(delayq)

    assert delayq.rule("r").digest == rule.digest
    assert [task.args for task in delayq.select(tag="every:r")] == [(1,)]
    assert waiting(delayq, "other") == [1]


def test_a_dump_of_rules_that_only_a_later_release_reads_ends_with_1_and_that_one_loads_them(
    theirs, told, command, delayq, redis
):
    delayq.select(all=True).cancel()

    status, printed = command(None, "dump")

    lines = [json.loads(line) for line in printed.splitlines()]
    assert (status, [line["kind"] for line in lines]) == (1, ["dump", "rule", "rule", "end"])
    refused = [str(error) for error in delayq.load(lines, dry_run=True).refused]
    why = f"was not loaded: the rule cannot be read: {TROUBLE}"
    assert sorted(refused) == [f"task 'other' {why}", f"task 'r' {why}"]
    redis.flushall()
    told(theirs, ["load", lines])
    assert redis.hlen(RULES) == 2
    assert not redis.exists(RECORDS)
    loaded = told(theirs, ["rules"])
    assert len(loaded[0]) == 2


# Each of these rules has one run at a time, so its writers look at it each second.
def test_in_a_roll_out_rules_of_both_formats_go_on_and_each_slot_runs_once(
    versions, start, told, delayq, redis
):
    def scanner(folder):
        started = start(folder, "scanner")
        started.wait_log("scanning", ALLOWED)
        return started

    def ran(rule):
        messages = [json.loads(one)["headers"] for one in redis.lrange("celery", 0, -1)]
        return [headers["id"] for headers in messages if headers["task"] == rule]

    new = versions["records"]
    told(None, ["every", "ours", 1, "key"])
    old_scanner, new_scanner = scanner(None), scanner(new)
    eventually(lambda: len(ran("ours")) > 1)
    assert old_scanner.stop(SIGTERM, ALLOWED) == 0
    told(new, ["upgrade"], ["every", "theirs", 1, "another key"])
    # One of the older release that comes late.
    late_scanner = scanner(None)
    before = len(ran("ours")), len(ran("theirs"))
    eventually(lambda: len(ran("ours")) > before[0] + 2 and len(ran("theirs")) > before[1] + 2)

    for one in (late_scanner, new_scanner):
        assert one.stop(SIGTERM, ALLOWED) == 0
    assert max(Counter(ran("ours") + ran("theirs")).values()) == 1
    assert delayq.counts().troubled_rules == 0
    assert not [*delayq.check()]
