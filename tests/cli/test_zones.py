"""The time zone of input and output: the app's, UTC, or this machine's; headings name it."""

import json
import re
from datetime import timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
import pytz
from celery.utils.time import timezone as celerys

from celery_delayq.core.clock import LocalTime
from celery_delayq.operations.cli import common
from tests.app.support import FAR

NINE = "2100-01-01 09:00:00"  # FAR in Tokyo


@pytest.fixture
def tokyo(delayq_app, url):
    app = delayq_app(url, timezone="Asia/Tokyo")
    app.send_task("t", task_id="a", delayq_at=FAR)
    return app


@pytest.fixture
def in_delhi(monkeypatch):
    """This machine's zone."""
    monkeypatch.setattr(celerys, "local", ZoneInfo("Asia/Kolkata"))


def due_in(lines):
    head, row = lines
    return head[head.index("DUE") :].split("  ")[0], row.split("  ")[1].strip()


def test_a_table_is_in_the_app_s_zone_and_says_so(tokyo, printed):
    assert due_in(printed("list", app=tokyo)) == ("DUE (Asia/Tokyo)", NINE)


def test_utc_and_this_machine_s_zone_are_asked_for(tokyo, printed, in_delhi):
    assert due_in(printed("list", "--utc", app=tokyo)) == ("DUE (UTC)", "2100-01-01 00:00:00")
    local = due_in(printed("list", "--local", app=tokyo))
    assert local == ("DUE (Asia/Kolkata)", "2100-01-01 05:30:00")


@pytest.mark.parametrize(
    ("option", "time"), [([], "09:00:00 Asia/Tokyo"), (["--utc"], "00:00:00 UTC"),
                         (["--local"], "05:30:00 Asia/Kolkata")]
)  # fmt: skip
def test_show_and_status_have_each_time_with_its_zone(tokyo, printed, in_delhi, option, time):
    lines = printed("show", "a", *option, app=tokyo)
    [due] = [line for line in lines if line.startswith("due ")]
    assert re.fullmatch(rf"due +in [\d,]+ d( \d+ h)? \(2100-01-01 {time}\)", due)
    [created] = [line for line in lines if line.startswith("created")]
    assert created.endswith(f"{time.split()[1]})")
    tokyo.delayq.pause(all=True)
    assert f" {time.split()[1]})" in printed("status", *option, app=tokyo)[2]


def test_history_is_in_the_same_zone(delayq_app, url, printed):
    app = delayq_app(url, timezone="Asia/Tokyo", delayq_history=5)
    app.send_task("t", task_id="a", delayq_at=FAR)
    [event] = app.delayq.history()

    head, row = printed("history", app=app)
    assert head.startswith("WHEN (Asia/Tokyo)")
    assert row.startswith(common.stamp(event.when, ZoneInfo("Asia/Tokyo")))
    assert printed("history", "--utc", app=app)[0].startswith("WHEN (UTC)")


def test_json_is_in_utc_whatever_one_asks_for(tokyo, printed, in_delhi):
    for option in ([], ["--local"]):
        [line] = printed("list", "--json", *option, app=tokyo)
        assert json.loads(line)["due"] == "2100-01-01T00:00:00+00:00"
        [line] = printed("show", "a", "--json", *option, app=tokyo)
        assert json.loads(line)["due"] == "2100-01-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("option", "hours"), [([], -9), (["--utc"], 0), (["--local"], -5.5)]
)  # fmt: skip
def test_a_time_typed_without_an_offset_is_in_the_same_zone(tokyo, run, in_delhi, option, hours):
    assert run(*["reschedule", "a", "2100-01-02T00:00", *option], app=tokyo).exit_code == 0
    due = FAR + 86_400 + hours * 3600
    assert tokyo.delayq.get("a").due.timestamp() == due

    assert run("reschedule", "a", "by:+1", "--if-due", "2100-01-02T00:00", *option,
               app=tokyo).exit_code == 0  # fmt: skip
    picked = ["--due-from", "2100-01-02T00:00:01", "--due-before", "2100-01-02T00:00:02"]
    assert run("list", "--ids", *picked, *option, app=tokyo).output == "a\n"
    assert run("cancel", *picked, "--yes", *option, app=tokyo).output == "1 task cancelled\n"


def test_a_printed_time_can_be_typed(tokyo, printed, run):
    for option in ([], ["--utc"]):
        _, shown = due_in(printed("list", *option, app=tokyo))
        moved = run("reschedule", "a", "by:+1h", "--if-due", shown, *option, app=tokyo)
        assert moved.output.startswith("task a rescheduled to 2100-")


def test_an_offset_that_is_typed_counts(tokyo, run):
    run("reschedule", "a", "2100-01-01T00:00:00-01:00", "--utc", app=tokyo)
    assert tokyo.delayq.get("a").due.timestamp() == FAR + 3600


@pytest.mark.parametrize("line", [["list"], ["show", "a"], ["cancel", "a"], ["history"]])
def test_two_zones_at_once_are_wrong_usage(tokyo, misused, line):
    assert misused(*line, "--utc", "--local", app=tokyo) == (
        "Error: --utc and --local exclude each other."
    )


@pytest.mark.parametrize(
    ("zone", "name"),
    [
        (timezone.utc, "UTC"),
        (ZoneInfo("Europe/Berlin"), "Europe/Berlin"),
        (timezone(timedelta(hours=2)), "UTC+02:00"),
        (LocalTime(), "local"),
        (pytz.timezone("Europe/Berlin"), "Europe/Berlin"),
    ],
)
def test_a_zone_has_a_name(zone, name):
    assert common.name_of(zone) == name


def test_a_time_typed_in_a_zone_of_pytz_is_its_wall_time(delayq_app, url, run):
    app = delayq_app(url, timezone=pytz.timezone("Europe/Berlin"))
    app.send_task("t", task_id="a", delayq_at=FAR)
    assert run("reschedule", "a", "2030-10-27T02:30", app=app).exit_code == 0
    assert app.delayq.get("a").due.isoformat() == "2030-10-27T00:30:00+00:00"
