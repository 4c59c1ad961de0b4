"""`delayq status`: the waiting tasks, and whether a scanner is there to deliver them.

`test_screens.py` has whole screens, with pauses, dead and refused tasks.
"""

import json
import re
import socket
from dataclasses import replace

import pytest

from celery_delayq.core.text import lasting
from celery_delayq.operations.cli import lists
from celery_delayq.operations.cli.lists import SHOWN
from celery_delayq.operations.cli.output import text_of
from celery_delayq.operations.health import NO_SCANNER
from celery_delayq.operations.queues import QueueCounts
from tests.app.support import FAR, LONG_AGO
from tests.cli.screens import STATUS, UTC
from tests.support.shards import each

pytestmark = pytest.mark.operations


def overdue(app):
    """The lateness, at this moment, of a task that was due long ago."""
    return lasting(app.delayq.counts().now_ms / 1000 - LONG_AGO)


def test_status_tells_all_of_the_store_on_one_screen(app, said, redis_server):
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
        f"  ! {NO_SCANNER.sentence}",
        f"waiting 3   overdue 1 ({late})   paused 0   dead 0   scanners 0",
        "QUEUE   WAITING  OVERDUE  STATE",
        "mail          2        1",
        "celery        1        0",
    ]


def test_a_due_paused_task_is_not_overdue_before_a_scanner_has_met_it(app, said):
    app.send_task("t", delayq_at=LONG_AGO)
    app.delayq.pause(all=True)
    lines = said("status")
    assert lines[-1] == "waiting 0   overdue 0   paused 1   dead 0   scanners 0"
    assert re.fullmatch(r"  ! everything paused \d+ s ago \(.* UTC\), 1 task due", lines[2])


def test_status_names_the_scanners_broker_if_it_is_another_one(app, alive, delayq_app, url, said):
    other = delayq_app("amqp://127.0.0.1:1//", delayq_url=url)
    alive(app)

    theirs = said("status", app=other)[1]
    none = [line for line in said("status") if "broker" in line]

    assert theirs.startswith("  ! the scanners have the broker redis, database 0 on 127.0.0.1:")
    assert "this app has another one, or other hosts of it; give each app a delayq_prefix" in theirs
    assert none == []


def queues_on(screen):
    """The rows of queues, each in words, and the sentences below them."""
    lines = [text_of(line) for line in lists.status_screen(screen, "direct", UTC, None)]
    head = next(at for at, line in enumerate(lines) if line.startswith("QUEUE"))
    return [line.split("  ") for line in lines[head + 1 :]]


def test_the_fullest_of_very_many_queues_are_shown():
    queues = [QueueCounts(f"queue{step:02}", 1, 0) for step in range(SHOWN + 2)]
    more = [QueueCounts("full", 2, 0), QueueCounts("late", 1, 1)]
    rows = queues_on(replace(STATUS, queues=[*queues, *more], pauses=[]))
    assert [row[0] for row in rows[:3]] == ["late", "full", "queue00"]
    assert (len(rows), rows[-1]) == (SHOWN + 1, ["4 more queues are in --json."])


def test_status_says_that_it_has_looked_at_some_of_the_waiting_tasks_only():
    *_, [last] = queues_on(replace(STATUS, queues_complete=False))
    assert last == "These are the 10,007 that are due next, of 10,007 that wait."


def test_a_strange_name_of_a_queue_is_one_line_of_plain_text():
    queues = [QueueCounts("two\nlines\x1b[31m\u202e", 1, 0)]
    [row] = queues_on(replace(STATUS, queues=queues))
    assert row[0] == r"two\nlines\x1b[31m\u202e"


def test_unreadable_tasks_have_a_row(app, redis, said):
    app.send_task("t", task_id="a", delayq_at=FAR)
    for key in each("records"):
        redis.hset(key, "a", "spoilt")
    assert "(cannot be read)        1        0" in said("status")


def test_status_says_that_tasks_are_relayed_to_another_broker(delayq_app, url, said):
    app = delayq_app("amqp://guest:secret@rabbit:5672//", delayq_url=url)
    assert said("status", app=app)[0].endswith("  relay to amqp, virtual host / on rabbit:5672")


def test_a_scanner_that_is_alive_is_named_and_there_is_no_warning(app, alive, said):
    alive(app)
    lines = said("status")
    assert lines[1].endswith(f"   scanners 1 on {socket.gethostname()}")
    assert "! " not in "".join(lines)


def test_an_empty_store_has_nothing_next_nothing_overdue_and_no_queues(said):
    assert said("status")[1:] == [
        f"  ! {NO_SCANNER.sentence}",
        "waiting 0   overdue 0   paused 0   dead 0   scanners 0",
    ]


def test_json_is_one_object_and_nothing_else(app, alive, said):
    app.send_task("t", delayq_at=FAR)
    alive(app)

    [line] = said("status", "--json")

    assert json.loads(line) == app.delayq.status().facts()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((-5, "0 s"), (0.4, "0 s"), (59.4, "59 s"), (60, "1 min"), (3599, "59 min 59 s")),
        *((3600, "1 h"), (7505, "2 h 5 min"), (86_400 * 3 + 5, "3 d")),
        (86_400 * 2000 + 7200, "2,000 d 2 h"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds, words):
    assert lasting(seconds) == words
