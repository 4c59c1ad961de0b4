"""``celery delayq check``: a line for each finding, and an exit status for scripts."""

import json

import click
import pytest

from celery_delayq.contrib.care.check import KINDS
from tests.app.support import FAR

KEY = "{delayq:0}:dead"
DUE = "{delayq:0}:due"


@pytest.fixture
def good(app):
    app.send_task("t", task_id="good", delayq_at=FAR)


@pytest.mark.usefixtures("good")
@pytest.mark.parametrize(
    ("options", "said"), [("", "nothing found\n"), ("--json", ""), ("--repair", "nothing found\n")]
)
def test_a_store_that_fits_has_nothing_to_tell_or_repair(run, options, said):
    result = run("check", *options.split())
    assert (result.exit_code, result.output) == (0, said)


@pytest.mark.usefixtures("good")
def test_each_finding_is_a_line_or_a_line_of_json(run, redis):
    redis.zadd(KEY, {b"......lost\n": 1})
    result = run("check")
    says = f"lost\\n: {KINDS['place_without_record'].wrong}\n"
    assert (result.exit_code, result.output) == (1, says)
    result = run("check", "--json")
    assert result.exit_code == 1
    assert json.loads(result.output)["kind"] == "place_without_record"


# --repair


@pytest.fixture
def lost_place(app, good, redis):
    app.send_task("t", task_id="lost", delayq_at=FAR)
    (member,) = (one for one in redis.zrange(DUE, 0, -1) if one[6:] == b"lost")
    redis.zrem(DUE, member)


@pytest.mark.usefixtures("on_a_terminal", "lost_place")
def test_a_repair_says_what_it_found_and_does_asks_does_it_and_looks_again(app, redis, run):
    result = run("check", "--repair", stdin="y\n")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        f"lost: {KINDS['record_without_place'].wrong}",
        "",
        "found  kind                  repair",
        f"1      record_without_place  {KINDS['record_without_place'].repair}",
        "",
        "repair 1 finding? [y/N]: y",
        "1 repaired; the task waits again",
        "checking again",
        "nothing found",
    ]
    assert redis.zcard(DUE) == 2
    assert app.delayq.cancel("lost")


@pytest.mark.usefixtures("lost_place")
def test_a_repair_without_a_terminal_needs_yes(redis, run):
    result = run("check", "--repair")
    assert (result.exit_code, redis.zcard(DUE)) == (1, 1)
    assert "repair 1 finding? There is no terminal to confirm; pass --yes" in result.output
    assert run("check", "--repair", "--yes").exit_code == 0
    assert redis.zcard(DUE) == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--yes"], "--yes is for --repair."),
        (["--repair", "--json"], "--json --repair cannot ask: pass --yes."),
    ],
)
def test_options_that_make_no_sense_together_are_a_usage_error(run, options, says):
    result = run("check", *options)
    assert result.exit_code == 2
    assert says in result.output


@pytest.mark.usefixtures("good")
def test_a_finding_without_a_repair_is_left_and_the_status_says_so(redis, run):
    redis.hset("{delayq:0}:records", "good", "2?")
    result = run("check", "--repair")
    assert result.exit_code == 1
    assert "none; it is only reported" in result.output
    assert result.output.endswith("none of these can be repaired\n")


@pytest.mark.usefixtures("lost_place")
def test_a_finding_left_beside_repaired_ones_is_printed_once_more(redis, run):
    redis.hset("{delayq:0}:records", "good", "2?")
    result = run("check", "--repair", "--yes")
    assert result.exit_code == 1
    assert result.output.splitlines()[-4:] == [
        "1 left alone",
        "1 repaired; the task waits again",
        "checking again",
        f"good: {KINDS['unreadable_record'].wrong}",
    ]


@pytest.mark.usefixtures("lost_place")
def test_as_json_each_step_is_a_line(redis, run):
    result = run("check", "--repair", "--yes", "--json")
    assert result.exit_code == 0
    found, done = map(json.loads, result.output.splitlines())
    kind = KINDS["record_without_place"]
    named = {"kind": "record_without_place", "id": "lost"}
    assert found == {"step": "found", **named, "sentence": kind.wrong, "repair": kind.repair}
    assert done == {"step": "repaired", **named, "what": "back"}


def test_a_tag_that_is_left_is_named(app, redis, run):
    redis.zadd("{delayq:0}:tags", {b"user:7\0......gone": 0, b"sms\0......gone": 0})
    found = map(json.loads, run("check", "--json").output.splitlines())
    assert sorted((one["id"], one["tag"]) for one in found) == [("gone", "sms"), ("gone", "user:7")]


def test_a_lost_or_dead_task_is_named(app, redis, run, caplog):
    app.send_task("t", task_id="failed", delayq_at=FAR)
    redis.hset("{delayq:0}:errors", "failed", "NO_ROUTE\n")
    redis.delete(DUE)
    redis.zadd(DUE, {b"......gone": 1})
    assert run("check", "--repair", "--yes").exit_code == 0
    assert "task gone is lost: it had no record, so its place was removed" in caplog.messages
    assert "task failed is dead: NO_ROUTE\\n" in caplog.messages
    assert app.delayq.get("failed").reason == "NO_ROUTE\n"


def test_the_first_of_many_are_told_in_full_and_all_are_repaired(app, redis, run):
    redis.zadd(DUE, {b"......%d" % number: 1 for number in range(60)})
    output = run("check", "--repair", "--yes").output
    assert output.count("a place has no record") == 20
    assert "and 40 more of place_without_record\n" in output
    assert "\n60     place_without_record  the place is removed\n" in output
    assert "\n60 repaired; the task is lost\nchecking again\nnothing found\n" in output


@pytest.mark.usefixtures("on_a_terminal", "lost_place")
def test_only_what_was_said_is_repaired(app, redis, run, monkeypatch):
    """A finding that appears during the confirmation is reported by the next check."""

    def confirm(_, abort):
        assert abort
        app.delayq.cancel("lost")
        redis.zadd(DUE, {b"......later": 1})

    monkeypatch.setattr(click, "confirm", confirm)
    result = run("check", "--repair")
    assert result.exit_code == 1
    assert result.output.splitlines()[-3:] == [
        "1 resolved by itself meanwhile",
        "checking again",
        f"later: {KINDS['place_without_record'].wrong}",
    ]
