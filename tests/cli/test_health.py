"""`health` and `check`: what is wrong, for operators."""

import json
import re

import click
import pytest

from celery_delayq.contrib.care.check import KINDS
from tests.app.support import FAR, LONG_AGO
from tests.app.test_status import NOBODY
from tests.cli.conftest import MODULE
from tests.support.places import at
from tests.support.ports import free_port

# `delayq health`: exit status 1 and a sentence for each thing that is wrong.


def test_health_prints_one_word_if_all_is_well(app, alive, said):
    alive(app)
    app.send_task("t", delayq_at=FAR)
    assert said("health") == ["healthy"]
    assert said("health", "--here") == ["healthy"]
    assert json.loads(said("health", "--json")[0]) == {
        "healthy": True,
        "problems": [],
        "paused": [],
        "notes": [],
    }


def test_health_without_a_scanner_ends_with_status_1(app, refused):
    assert refused("health") == [NOBODY]
    assert refused("health", "--here")[0].startswith("no scanner on this host, ")
    assert json.loads(refused("health", "--json")[0]) == {
        "healthy": False,
        "problems": [NOBODY],
        "paused": [],
        "notes": [],
    }


def test_a_pause_is_told_at_once_and_becomes_a_problem_after_max_paused(app, alive, said, refused):
    alive(app)
    for _ in range(20):
        app.send_task("t", delayq_at=LONG_AGO)
    app.delayq.pause(all=True)
    begins = r"everything is paused since [\d-]+ [\d:]+ UTC: 20 tasks are due and not delivered, "
    ends = rf"; to resume: celery -A {MODULE} delayq resume --all"

    [line] = said("health")
    assert re.fullmatch(rf"{begins}the first for [^,;]+{ends}", line)
    told = json.loads(said("health", "--json")[0])
    assert (told["healthy"], told["problems"], len(told["paused"])) == (True, [], 1)
    [line] = refused("health", "--max-paused", "0")
    assert re.fullmatch(rf"{begins}the first for [^,;]+, and 0 s are allowed{ends}", line)


def test_options_say_how_long_a_task_may_be_overdue_and_how_many_dead(app, alive, said, refused):
    alive(app)
    at(app.delayq, "dead")
    app.send_task("t", delayq_at=LONG_AGO)
    overdue, dead = refused("health", "--max-overdue", "0.5")
    assert overdue.endswith("; 0.5 s are allowed")
    assert dead == "1 task is dead; 0 are allowed"
    assert said("health", "--max-overdue", "1e10", "--max-dead", "1") == ["healthy"]


@pytest.mark.parametrize("bound", ["overdue -1", "dead 0.5"])
def test_a_bound_that_is_none_is_an_error(run, bound):
    result = run("health", *f"--max-{bound}".split())
    assert result.exit_code in (1, 2)
    assert "Error: " in result.output
    assert "Traceback" not in result.output


def test_a_store_that_is_away_is_a_problem_of_health_in_json_too(delayq_app, refused):
    app = delayq_app(f"redis://127.0.0.1:{free_port()}/0")
    [sentence] = refused("health", app=app)
    [told] = refused("health", "--json", app=app)
    assert sentence.startswith("the store ")
    assert "failed" not in sentence
    assert json.loads(told)["problems"] == [sentence]


# ``celery delayq check``: a line for each finding, and an exit status for scripts.


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
