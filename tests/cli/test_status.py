"""`delayq status`: the waiting tasks, and whether a scanner is there to deliver them."""

import json
import re
import socket
from contextlib import closing
from zoneinfo import ZoneInfo

import pytest
from celery.utils.time import timezone as celerys

from celery_delayq.core.logs import lasting
from celery_delayq.operations import queues
from celery_delayq.operations.cli.command_status import SHOWN
from celery_delayq.operations.health import NO_SCANNER
from tests.app.support import FAR, LONG_AGO, hand_over_until_dead
from tests.support.shards import each

pytestmark = pytest.mark.operations


@pytest.fixture
def shard_steps(app):
    """A scanner that does nothing by itself; after a hand-over it is alive for long."""
    app.conf.delayq_safety_interval = 300  # it counts as alive for three times as long
    with closing(app.delayq.services.steps_by_shard()[0]) as made:
        yield made


def overdue(app):
    """The lateness, at this moment, of a task that was due long ago."""
    return lasting(app.delayq.counts().now_ms / 1000 - LONG_AGO)


def test_it_tells_all_of_the_store_on_one_screen(app, said, redis_server):
    app.send_task("t", queue="mail", delayq_at=FAR)
    app.send_task("t", delayq_at=FAR + 1)
    app.send_task("t", queue="mail", delayq_at=LONG_AGO)

    before = overdue(app)
    lines = said("status")
    after = overdue(app)

    late = re.search(r"overdue 1 \((.*?)\)", lines[2])[1]
    assert late in (before, after)
    assert lines == [
        f"delayq  {redis_server.url()}  prefix delayq  direct",
        f"  ! {NO_SCANNER}",
        f"waiting 3   overdue 1 ({late})   paused 0   dead 0   scanners 0",
        "QUEUE   WAITING  OVERDUE  STATE",
        "mail          2        1",
        "celery        1        0",
    ]


def test_a_due_paused_task_is_not_overdue_before_a_scanner_has_met_it(app, said):
    app.send_task("t", delayq_at=LONG_AGO)
    app.delayq.pause()

    lines = said("status")

    assert lines[-1] == "waiting 0   overdue 0   paused 1   dead 0   scanners 0"
    assert re.fullmatch(r"  ! everything paused \d+ s ago \(.* UTC\), 1 task due", lines[2])


def test_it_names_the_scanners_broker_where_it_is_another_one(shard_steps, delayq_app, url, said):
    other = delayq_app("amqp://127.0.0.1:1//", delayq_url=url)
    shard_steps.hand_over()

    theirs = said("status", app=other)[1]
    none = [line for line in said("status") if "broker" in line]

    assert theirs.startswith("  ! the scanners have the broker redis, database 0 on 127.0.0.1:")
    assert "which is not this app's; give each app a delayq_prefix of its own" in theirs
    assert none == []


@pytest.fixture
def tokyo(delayq_app, url, monkeypatch):
    monkeypatch.setattr(celerys, "local", ZoneInfo("Asia/Kolkata"))
    return delayq_app(url, timezone="Asia/Tokyo")


@pytest.mark.parametrize(
    ("option", "zone"), [([], "Asia/Tokyo"), (["--utc"], "UTC"), (["--local"], "Asia/Kolkata")]
)
def test_times_are_in_the_zone_that_is_asked_for(tokyo, said, option, zone):
    tokyo.delayq.pause()

    assert f" {zone})" in said("status", *option, app=tokyo)[2]


def test_the_next_due_time_is_told_from_now(app, said):
    app.send_task("t", delayq_after=3600 * 24 * 2 + 600)

    assert "   next in 2 d   " in said("status")[2]


def test_of_very_many_queues_the_fullest_are_shown(app, said):
    for step in range(SHOWN + 2):
        app.send_task("t", queue=f"queue{step:02}", delayq_at=FAR)
    app.send_task("t", queue="full", delayq_at=FAR)
    app.send_task("t", queue="full", delayq_at=FAR)
    app.send_task("t", queue="late", delayq_at=LONG_AGO)

    lines = said("status")

    start = lines.index("QUEUE    WAITING  OVERDUE  STATE") + 1
    assert [line.split() for line in lines[start : start + 3]] == [
        ["late", "1", "1"],
        ["full", "2", "0"],
        ["queue00", "1", "0"],
    ]
    assert lines[-1] == "4 more queues are in --json."
    assert len(lines) == start + SHOWN + 1


def test_status_says_that_it_has_looked_at_some_of_the_waiting_tasks_only(app, said, monkeypatch):
    monkeypatch.setattr(queues, "MOST", 3)
    for _ in range(5):
        app.send_task("t", delayq_at=FAR)

    assert "These are the 3 that are due next, of 5 that wait." in said("status")


def test_a_strange_name_of_a_queue_is_one_line_of_plain_text(app, said):
    app.send_task("t", queue="two\nlines\x1b[31m\u202e", delayq_at=FAR)

    assert "two\\nlines\\x1b[31m\\u202e        1        0" in said("status")


def test_unreadable_tasks_have_a_row(app, redis, said):
    app.send_task("t", task_id="a", delayq_at=FAR)
    for key in each("records"):
        redis.hset(key, "a", "spoilt")

    assert "(cannot be read)        1        0" in said("status")


def test_with_another_broker_it_says_that_tasks_are_relayed(delayq_app, url, said):
    app = delayq_app("amqp://guest:secret@rabbit:5672//", delayq_url=url)

    assert said("status", app=app)[0].endswith("  relay to amqp, virtual host / on rabbit:5672")


def test_with_a_scanner_alive_it_is_named_and_there_is_no_warning(shard_steps, said):
    shard_steps.hand_over()

    lines = said("status")

    assert lines[1].endswith(f"   scanners 1 on {socket.gethostname()}")
    assert "! " not in "".join(lines)


def test_a_scanner_that_left_is_not_alive(shard_steps, said):
    shard_steps.hand_over()
    shard_steps.leave()

    assert said("status")[1] == f"  ! {NO_SCANNER}"


def test_an_empty_store_has_nothing_next_nothing_overdue_and_no_queues(said):
    lines = said("status")

    assert lines[-1] == "waiting 0   overdue 0   paused 0   dead 0   scanners 0"


def test_dead_tasks_are_counted(app, redis, said):
    redis.set("broken", "not a list")
    app.send_task("t", queue="broken", delayq_at=LONG_AGO)
    hand_over_until_dead(app.delayq, redis)

    assert "   dead 1   " in said("status")[2]


def test_each_pause_has_a_line(app, said):
    app.delayq.pause(queue="mail")
    app.send_task("t", queue="mail", delayq_at=LONG_AGO)
    app.delayq.hand_over()

    lines = said("status")

    assert "   paused 1   " in lines[-1]
    [line] = [line for line in lines if "queue mail" in line]
    assert re.fullmatch(r"  ! queue mail paused \d+ s ago \(.*\), 1 task due", line)


def test_the_pause_of_a_queue_stands_beside_its_waiting_tasks(app, said):
    app.send_task("t", queue="mail", delayq_at=FAR)
    app.delayq.pause(queue="mail")

    lines = said("status")

    assert re.fullmatch(r"mail         1        0  paused \d+ s ago \(.*\)", lines[-1])
    assert len([line for line in lines if "paused " in line]) == 2


def test_json_is_one_object_and_nothing_else(app, shard_steps, said, redis_server):
    app.send_task("t", delayq_at=FAR)
    shard_steps.hand_over()

    [line] = said("status", "--json")

    told = json.loads(line)
    [scanner] = told.pop("scanners")
    assert scanner["name"] == shard_steps.name
    assert told == {
        "store": redis_server.url(),
        "prefix": "delayq",
        "path": "direct",
        "other_broker": None,
        "scheduled": 1,
        "overdue": 0,
        "refused": 0,
        "paused": 0,
        "in_flight": 0,
        "dead": 0,
        "oldest_overdue": None,
        "next_due": "2100-01-01T00:00:00+00:00",
        "is_exact": True,
        "rules": 0,
        "troubled_rules": 0,
        "pauses": [],
        "queues": [{"queue": "celery", "waiting": 1, "overdue": 0}],
        "queues_complete": True,
    }


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0 s"),
        (0.4, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (3599, "59 min 59 s"),
        (3600, "1 h"),
        (7505, "2 h 5 min"),
        (86_400 * 3 + 5, "3 d"),
        (86_400 * 2000 + 7200, "2,000 d 2 h"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds, words):
    assert lasting(seconds) == words
