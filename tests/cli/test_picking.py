"""Filters by relative times, `--overdue` and `--dead`, in `list` and in commands that change."""

import json

import pytest

from tests.app.support import FAR, LONG_AGO
from tests.support.places import at


@pytest.fixture
def tasks(app, redis):
    """One task of each kind; the due ones stay, as no scanner delivers them."""
    redis.set("broken", "not a list")
    at(app.delayq, "dead", "dead", queue="broken")
    app.send_task("t", task_id="refused", queue="broken", delayq_at=LONG_AGO + 1)
    app.delayq.pause(queue="slow")
    app.send_task("t", task_id="parked", queue="slow", delayq_at=LONG_AGO + 2)
    app.delayq.hand_over()
    app.send_task("t", task_id="due", delayq_at=LONG_AGO + 3, delayq_tags=["x"])
    app.send_task("t", task_id="soon", delayq_after=1800, delayq_tags=["x"])
    app.send_task("t", task_id="far", delayq_at=FAR, delayq_tags=["x"])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["refused", "parked", "due", "soon", "far"]),
        (["--overdue"], ["refused", "due"]),
        (["--overdue", "--due-from", str(LONG_AGO + 3)], ["due"]),
        (["--overdue", "--tag", "x"], ["due"]),
        (["--overdue", "--queue", "broken"], ["refused"]),
        (["--due-before", "+1h"], ["refused", "parked", "due", "soon"]),
        (["--due-before", "-10m"], ["refused", "parked", "due"]),
        (["--due-from", "-10m"], ["soon", "far"]),
        (["--due-from", "+1h29m60s"], ["far"]),
        (["--due", "1 Jan 2100"], ["far"]),
        (["--due", "..now"], ["refused", "parked", "due"]),
        (["--due", "in 2 h", "--due-from", "now"], ["soon"]),
        (["--due-before", "1 Jan 2100"], ["refused", "parked", "due", "soon"]),
        (["--due", "..+1h", "--overdue"], ["refused", "due"]),
        (["--dead"], ["dead"]),
    ],
)
def test_a_list_has_the_picked_tasks(tasks, printed, options, expected):
    assert printed("list", "--ids", *options) == expected


MOVED = "rescheduled, each from its own due time"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("cancel --overdue", "2 tasks would be cancelled"),
        ("run-now --overdue --tag x", "1 task would be made due now"),
        ("retry --dead", "1 task would be made due now"),
        ("remove --dead --queue broken", "1 task would be removed"),
        ("reschedule --due-before +1h by:+1h", f"5 tasks would be {MOVED}"),
        ("release --overdue --tag x", "1 task would be released"),
        ("cancel --dead --state paused", "2 tasks would be cancelled"),
        ("cancel --due ..now", "4 tasks would be cancelled"),
        ("cancel --all --limit 4", "4 tasks would be cancelled"),
        ("reschedule --tag x --limit 2 by:+1h", f"2 tasks would be {MOVED}"),
    ],
)
def test_a_command_that_changes_tasks_picks_them_as_a_list_does(tasks, printed, line, said):
    assert printed(*line.split(), "--dry-run") == [said]


def test_a_day_is_the_zone_s(app, printed):
    app.send_task("t", task_id="a", delayq_at="2100-01-01T23:30:00Z")
    app.conf.timezone = "Europe/Berlin"
    assert printed("list", "--ids", "--due", "2 Jan 2100") == ["a"]
    assert printed("list", "--ids", "--due", "2 Jan 2100", "--utc") == []


def test_a_span_that_is_none_is_an_error_of_usage(misused):
    assert misused("list", "--due", "tomorow") == (
        "Error: Invalid value for '--due': 'tomorow' is not a time; did you mean tomorrow?"
    )
    assert misused("list", "--due", "now..-1h") == (
        "Error: 'now..-1h' ends before it begins; type dates, such as 2030-01-28..2030-01-31"
    )


def test_from_now_is_by_redis_s_clock(app, printed, monkeypatch):
    app.send_task("t", task_id="soon", delayq_after=1800)
    # The command must not read this machine's clock; by its time, no task would be overdue.
    monkeypatch.setattr("celery_delayq.core.clock.utc_now", lambda: pytest.fail("it was read"))
    monkeypatch.setattr("time.time", lambda: 0.0)

    assert printed("list", "--ids", "--due-before", "+1h") == ["soon"]
    assert printed("list", "--ids", "--due-before", "+29m") == []


@pytest.mark.parametrize(
    ("command", "state"), [("list", ["--dead"]), ("cancel", ["--state", "paused"])]
)
def test_overdue_is_a_state_of_its_own(tasks, misused, command, state):
    assert misused(command, "--overdue", *state) == (
        "Error: --overdue selects waiting tasks; it takes no --state."
    )


@pytest.mark.parametrize(
    ("command", "option"), [("list", "--tag"), ("cancel", "--task"), ("list", "--queue")]
)
def test_a_pick_that_is_empty_is_refused_and_not_left_out(tasks, app, misused, command, option):
    sentence = misused(command, option, "", "--due-before", "+1h")
    assert sentence.startswith(f"Error: {option[2:]} is ''; expected ")
    assert app.delayq.counts().scheduled == 4


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ("-n 2", "3 more"),
        ("-n 0", "5 more"),
        ("--overdue -n 1", "1 more"),
        ("--state paused -n 0", "1 more"),
        ("--dead -n 0", "1 more"),
        ("--queue celery -n 1", "there are more"),
        ("--due-before +1h -n 1", "there are more"),
        ("--overdue --tag x -n 0", "there are more"),
        ("--json -n 3", "2 more"),
        ("--ids -n 4", "1 more"),
    ],
)
def test_a_list_that_the_limit_cut_off_says_how_many_more_there_are(tasks, run, options, more):
    result = run("list", *options.split())

    said = f"{more}; --limit ends this list at {options[-1]}\n"
    assert (result.exit_code, result.stderr) == (0, said)
    assert more not in result.stdout


@pytest.mark.parametrize("options", ["-n 5", "-n 9", "--dead -n 1", "--tag x -n 3", "--json -n 5"])
def test_a_list_that_is_whole_says_nothing_more(tasks, run, options):
    assert run("list", *options.split()).stderr == ""


def test_behind_a_cursor_a_list_does_not_say_how_many_more_there_are(tasks, printed, run):
    cursor = json.loads(printed("list", "--json")[0])["cursor"]
    result = run("list", "-n", "1", "--cursor", cursor)
    assert result.stderr == "there are more; --limit ends this list at 1\n"


def test_a_limit_is_kept_when_tasks_are_changed(tasks, app, said, misused):
    assert said("cancel", "--tag", "x", "--limit", "2", "--yes") == ["2 tasks cancelled"]
    assert app.delayq.select(tag="x").count() == 1
    for options in (["far"], ["--key", "k"]):
        assert misused("cancel", *options, "--limit", "2") == (
            "Error: --limit bounds a selection, as by --tag; it takes no ids or keys."
        )
    assert "some, as by --tag, or --all." in misused("cancel", "--limit", "2")
