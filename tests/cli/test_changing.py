"""`delayq show`, `cancel` and `reschedule`: their output and exit status."""

import math
import re
from datetime import datetime, timezone

import pytest

from celery_delayq.operations.cli.common import with_zone
from celery_delayq.operations.health import NO_SCANNER
from tests.app.support import FAR, LONG_AGO, redis_ms, to_ms
from tests.cli.shop import shop
from tests.support.forked import run_forked
from tests.support.places import at

pytestmark = pytest.mark.operations

UTC = timezone.utc
NOT_SCHEDULED = "task {} is not scheduled"


@pytest.fixture
def one(app):
    app.send_task("t", (1, "ü"), {"y": 2}, task_id="one", queue="mail", delayq_at=FAR)


def test_show_says_all_about_a_task(one, said, app):
    app.delayq.reschedule("one", by=0)
    task = app.delayq.get("one")

    lines = [re.sub(r"(in )?\d[\d, dhmins]+( ago)? \(", "(", line) for line in said("show", "one")]

    assert lines == [
        "id       one",
        "task     t",
        "args     (1, 'ü')",
        "kwargs   {'y': 2}",
        "queue    mail",
        "due      (2100-01-01 00:00:00 UTC)",
        f"created  ({with_zone(task.created, UTC)})",
        f"changed  ({with_zone(task.changed, UTC)})",
        f"revision {task.revision}",
        f"host     {task.host}",
        "state    SCHEDULED",
        f"! {NO_SCANNER.sentence}",
    ]


def test_show_says_why_a_task_is_dead(app, said):
    at(app.delayq, "dead", "one", queue="broken")

    lines = said("show", "one")

    assert "state      DEAD" in lines
    told = dict(line.split(maxsplit=1) for line in lines)
    assert told["reason"].startswith("broken: WRONGTYPE")
    assert told["attempts"] == "8"
    assert re.match(r"\d+ s ago", told["dead_since"])


def test_arguments_that_are_hidden_or_may_not_be_decoded_are_shown_as_celery_logs_them(app, said):
    hiding = {"argsrepr": "(***)", "kwargsrepr": "{'card': ***}"}
    app.send_task("t", ("s3cret",), {"card": "s3cret"}, task_id="one", delayq_at=FAR, **hiding)
    app.send_task("t", (1,), task_id="two", serializer="pickle", delayq_at=FAR)

    shown = said("show", "one")
    assert {"args     (***)", "kwargs   {'card': ***}"} <= {*shown}
    assert "s3cret" not in "".join(shown)
    assert "args     (1,)" in said("show", "two")


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ("nobody", NOT_SCHEDULED.format("nobody")),
        ("", "task_id is "),
        ("newer", "the record of task 'newer' cannot be read"),
    ],
    ids=["unknown", "no id", "of a later version"],
)
def test_one_of_several_that_is_not_cancelled_spoils_no_other(one, app, redis, run, bad, sentence):  # noqa: PLR0917
    for task_id in ("newer", "two"):
        app.send_task("t", task_id=task_id, delayq_at=FAR)
    redis.hset("{delayq:0}:records", "newer", b"? of another program")

    result = run("cancel", "one", bad, "two")

    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert (lines[0], lines[2]) == ("task one cancelled", "task two cancelled")
    assert sentence in lines[1]
    assert (app.delayq.get("one"), app.delayq.get("two")) == (None, None)
    assert redis.hget("{delayq:0}:records", "newer") == b"? of another program"


@pytest.mark.parametrize(
    ("place", "state"),
    [
        ("left", "has been handed over to its queue already"),
        ("leased", "is being published this moment"),
    ],
    ids=["delivered", "being published"],
)
@pytest.mark.parametrize("line", ["cancel one", "reschedule one +5m", "edit one --priority 3"])
def test_a_change_that_is_too_late_says_so(app, refused, line, place, state):
    at(app.delayq, place, "one")

    assert f"task one {state}" in refused(*line.split())[-1]


def test_cancel_with_revoke_sends_a_task_that_has_left_to_the_workers(app, run, to_workers):
    app.send_task("t", task_id="one", delayq_at=LONG_AGO)
    app.delayq.hand_over()

    run("cancel", "--revoke", "one")

    assert [method for method, _ in to_workers()] == ["revoke"]


@pytest.mark.parametrize(
    ("options", "time"),
    [
        ([], "2031-05-06 16:08:09.250 Asia/Tokyo"),
        (["--utc"], "2031-05-06 07:08:09.250 UTC"),
        (["--utc", "--if-due", str(FAR)], "2031-05-06 07:08:09.250 UTC"),
    ],
    ids=["the app's", "UTC", "on a condition"],
)
def test_reschedule_says_the_new_time_in_the_zone_asked_for(delayq_app, url, run, options, time):
    app = delayq_app(url, timezone="Asia/Tokyo")
    app.send_task("t", task_id="one", delayq_at=FAR)

    result = run("reschedule", "one", "2031-05-06T09:08:09.250+02:00", *options, app=app)

    assert result.output == f"task one rescheduled to {time}\n"
    assert app.delayq.get("one").due == datetime(2031, 5, 6, 7, 8, 9, 250_000, tzinfo=UTC)


def test_each_of_several_has_its_own_new_time(one, app, run):
    app.send_task("t", task_id="two", delayq_at=FAR + 60.25)

    result = run("reschedule", "one", "nobody", "two", "by:+1h")

    assert result.stdout.splitlines() == [
        "task one rescheduled to 2100-01-01 01:00:00 UTC",
        "task two rescheduled to 2100-01-01 01:01:00.250 UTC",
    ]
    assert NOT_SCHEDULED.format("nobody") in result.stderr


@pytest.mark.parametrize(("when", "delay"), [("by:+30m", 1800), ("by:-1h30m", -5400)])
def test_reschedule_takes_a_span_from_the_due_time(one, app, said, when, delay):
    [line] = said("reschedule", "one", when)
    assert line.startswith("task one rescheduled to ")
    assert said("reschedule", "--task", "t", "--yes", when) == ["1 task rescheduled"]

    assert app.delayq.get("one").due.timestamp() == FAR + 2 * delay


def test_reschedule_takes_a_span_from_now(one, app, redis, said):
    before = math.floor(redis_ms(redis))

    said("reschedule", "one", "+1h30m")

    assert before <= to_ms(app.delayq.get("one").due) - 5_400_000 <= redis_ms(redis) + 1


def test_the_condition_on_the_due_time_is_a_time_as_any(one, app, said, refused):
    unmoved = "task one is not due at the time of --if-due; nothing was changed"
    assert refused("reschedule", "one", "by:+1", "--if-due", "+1h")[-1] == unmoved
    for if_due in (str(FAR), "2100-01-01T00:00:01"):
        [line] = said("reschedule", "one", "by:+1", "--if-due", if_due)
        assert line.startswith("task one rescheduled to ")
    assert app.delayq.get("one").due.timestamp() == FAR + 2


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("by:-1h --only later", "would not move later, as --only requires"),
        (f"{FAR} --only earlier", "would not move earlier, as --only requires"),
        (f"by:-1h --only later --if-due {FAR}", "is not due at --if-due, or would not move later"),
    ],
)
def test_the_condition_that_does_not_hold_is_named(one, app, refused, line, why):
    said = refused("reschedule", "one", *line.split())
    assert said == [f"task one {why}; nothing was changed"]
    assert app.delayq.get("one").due.timestamp() == FAR


EARLIER = "{0} is not an option; to move a task to an earlier time, type by:{0}"
ONE_WORD = "a time is one word; put it into quotes: '{}'"
LAST = "the time comes last, after the ids: {}"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("one -5m", EARLIER.format("-5m")),
        ("one -1h30m --only earlier", EARLIER.format("-1h30m")),
        ("one 2030-01-31 09:00", ONE_WORD.format("2030-01-31 09:00")),
        ("one tomorrow 9:00 --utc", ONE_WORD.format("tomorrow 9:00")),
        ("one in 2 h", ONE_WORD.format("in 2 h")),
        ("+1h one", LAST.format("+1h")),
        ("by:-1h one two", LAST.format("by:-1h")),
        ("2030-01-31T09:00 one", LAST.format("2030-01-31T09:00")),
    ],
)
def test_a_time_in_the_wrong_place_is_told_where_it_belongs(one, app, misused, words, hint):
    assert misused("reschedule", *words.split()) == f"Error: {hint}"
    assert app.delayq.get("one").due.timestamp() == FAR


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("42 soon", "'soon' is not a time"),
        ("one 25:00", "'25:00' is not a time"),
        ("one soon --if-due +1h", "'soon' is not a time"),
        ("one +1h --if-due soon", "Invalid value for '--if-due'"),
        ("one +1h -x", "o such option"),
        ("one +1h -5x", "o such option"),
    ],
)
def test_a_mistake_of_another_kind_has_no_such_hint(misused, words, said):
    assert said in misused("reschedule", *words.split())


def test_a_real_command_says_that_a_task_is_moved_past_its_expiry(app, url, tmp_path):
    app.send_task("t", task_id="a", delayq_at=FAR, expires="2100-01-02T00:00:00+00:00")
    shop(tmp_path, url)

    words = ("-m", "celery", "-A", "shop", "delayq", "reschedule", "a", "by:+2d")
    done = run_forked(*words, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (0, "task a rescheduled to 2100-01-03 00:00:00 UTC\n")
    assert done.stderr == (
        "task a: due at 2100-01-03T00:00:00+00:00, but expires at 2100-01-02T00:00:00+00:00: "
        "no worker will run it\n"
    )
