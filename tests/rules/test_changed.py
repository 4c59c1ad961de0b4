"""A rule that is changed, to another key and shard too; and a schedule that a person gives it."""

import json
from contextlib import contextmanager, suppress
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from celery_delayq.contrib import rule_store as store
from celery_delayq.contrib.rules.plan import Plan, Timing
from celery_delayq.errors import InvalidOption
from tests.rules import support
from tests.rules.support import DAILY, HOUR, every, now, runs, write
from tests.support.shards import each

# A rule that is changed: to another key, perhaps on another shard; and within its jitter.


class KilledError(Exception):
    """In place of a process's end."""


@pytest.fixture
def set_keyed(delayq, report):
    """Set the rule with a key."""

    def set_keyed(key):
        return support.every(delayq, "r", report.s().set(delayq_key=key), HOUR, replace=True)

    return set_keyed


@pytest.fixture
def rows(redis):
    def rows():
        return [row for rules in each("rules") if (row := redis.hget(rules, "r"))]

    return rows


def given(row, **other):
    """The arguments that set a rule with this row, or another one."""
    own = {"revision", "last", "since"}
    known = {name: value for name, value in json.loads(row).items() if name not in own}
    return known | {"flags": "-n"} | other


@pytest.fixture
def killed_after(delayq):
    """Let a process end after so many of its steps on rules: ``with killed_after(2)``."""

    @contextmanager
    def killed_after(number):
        hooks, left = delayq.services.hooks, [KilledError] * number
        before = hooks.called, hooks.hears_calls

        def called(script, _):
            if script == "rule" and left and (error := left.pop()) and not left:
                raise error

        hooks.called, hooks.hears_calls = called, True
        with suppress(KilledError):
            yield
        hooks.called, hooks.hears_calls = before

    return killed_after


def set_also(delayq, row, keys):
    """Set the rule with other keys, too, as processes leave it that change its key at once."""
    for key in keys:
        other = given(row, home=key, digest=key.encode().hex())
        for end in ('"]', '\\"}'):  # the plan's key, and that of the signature in it
            begin = end[:-1]
            other["plan"] = other["plan"].replace(f"{begin}a{end}", f"{begin}{key}{end}")
        store.put(delayq.services.entries, "put", "r", other)


def test_a_rule_with_another_key_has_one_row_and_the_run_of_that(delayq, set_keyed, rows):
    for key in "abcdefgh":
        set_keyed(key)
        assert len(rows()) == 1
        assert [task.key for task in delayq.tasks()] == [key]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_process_that_is_killed_on_the_way_to_another_key_loses_no_rule(
    delayq, set_keyed, rows, killed_after, number
):
    for key, other in zip("abcdefgh", "ijklmnop", strict=True):
        set_keyed(key)
        with killed_after(number):
            set_keyed(other)
        for _ in range(3):
            write(delayq)
        assert len(rows()) == 1
        assert len(runs(delayq)) == 1


def test_a_process_that_finishes_a_move_late_changes_no_rule_that_was_set_since(
    delayq, set_keyed, rows
):
    set_keyed("a")
    shard = store.shard_for(delayq.services.entries, "b")
    row = given(rows()[0], home="b")
    set_keyed("b")
    now_set = rows()
    for _ in range(2):
        assert store.change(shard, "r", "place", json.dumps(row | {"digest": "abc"}), 9) == "same"
    assert rows() == now_set


def test_a_process_that_finishes_a_move_late_brings_no_removed_rule_back(
    delayq, set_keyed, rows, killed_after, between
):
    set_keyed("a")
    write(delayq)
    here = store.find(delayq.services.entries, "r").shard
    shards = {key: store.shard_for(delayq.services.entries, key).number for key in "bcdefgh"}
    key = next((key for key, number in shards.items() if number != here), None)
    if key is None:
        return  # there is one shard
    with killed_after(1):
        set_keyed(key)
    shard = delayq.services.entries.shards[here]
    [row] = store.named(shard, [b"r"])

    def overtake():
        between.before("cancel", lambda: None)
        write(delayq)  # another process finishes it
        delayq.rule("r").remove()

    between.before("cancel", overtake)
    store.clear(delayq.services, shard, row)
    assert between.asked["cancel"] > 1
    assert rows() == []


def test_a_move_takes_place_however_many_rules_there_are(delayq, set_keyed, rows, limits):
    set_keyed("a")
    limits(rules_most=0)
    for key in "bcdefgh":
        here = store.find(delayq.services.entries, "r").shard
        if store.shard_for(delayq.services.entries, key).number != here:
            set_keyed(key)
            assert len(rows()) == 1


def test_two_rows_of_a_name_become_one_when_it_is_said_again(delayq, set_keyed, rows):
    set_keyed("a")
    set_also(delayq, rows()[0], "bcdefgh")
    set_keyed("z")
    assert len(rows()) == 1
    assert [task.key for task in delayq.tasks()] == ["z"]


def test_runs_that_another_row_has_written_stay_when_one_is_cleared_up(delayq, set_keyed, rows):
    set_keyed("a")
    here = store.find(delayq.services.entries, "r")
    set_also(delayq, rows()[0], "bcdefgh")
    for _ in range(3):
        write(delayq)
    written = {task.key for task in delayq.tasks()}
    elsewhere = {
        key for key in written if store.shard_for(delayq.services.entries, key).number != here.shard
    }

    shard = delayq.services.entries.shards[here.shard]
    [now_here] = store.named(shard, [b"r"])
    store.clear(delayq.services, shard, now_here)

    assert {task.key for task in delayq.tasks()} >= elsewhere


def test_a_remove_takes_all_rows(delayq, set_keyed, rows):
    set_keyed("a")
    set_also(delayq, rows()[0], "bcdefgh")
    assert delayq.rule("r").remove()
    assert rows() == []


@pytest.mark.parametrize("what", ["changed", "resumed", "loaded"])
def test_a_rule_goes_on_behind_the_slots_whose_runs_were_due(delayq, report, rows, what):
    rule = support.every(delayq, "r", report.s(1), HOUR, jitter=3600)
    offset = Plan("{}", Timing("every 3 s"), "one", 3600.0).offset("r")
    assert offset > timedelta(minutes=1)
    if what == "resumed":
        rule.pause()
    changed = given(rows()[0], digest="abc")
    change = {
        "changed": ("put", json.dumps(changed), 10),
        "resumed": ("resume",),
        "loaded": ("load", json.dumps(changed | {"since": "1", "last": "1"}), 10),
    }[what]
    before = delayq.counts().now_ms

    store.change(store.shard_for(delayq.services.entries, "r"), "r", *change)

    last = store.find(delayq.services.entries, "r").last
    assert before <= store.ms_of(last + offset) <= delayq.counts().now_ms
    write(delayq)
    write(delayq)
    assert runs(delayq)[0] - now(delayq) <= HOUR


# A person gives a rule another schedule: it lies over the one that code says, until that ends.


BERLIN = "Europe/Berlin"
SIX = "0 6 * * *"


@pytest.fixture
def edited(delayq, rule):
    """The rule r, of which ann has changed the schedule; a writer has looked at it."""
    with delayq.acting("ann"):
        assert rule.edit(SIX, tz=BERLIN)
    write(delayq)
    return delayq.rule("r")


def in_berlin(moment):
    return moment.astimezone(ZoneInfo(BERLIN)).hour


def test_an_edit_clears_up_the_runs_and_writes_those_of_the_new_schedule(delayq, rule, edited):
    assert (edited.schedule, edited.tz) == (SIX, BERLIN)
    assert runs(delayq) == [edited.next[0]]
    assert in_berlin(edited.next[0]) == 6
    assert edited.revision > rule.revision


def test_an_edit_says_who_made_it_and_when_and_what_code_says(delayq, edited):
    assert (edited.edited.by, edited.edited.schedule, edited.edited.tz) == ("ann", DAILY, "UTC")
    assert timedelta(0) <= now(delayq) - edited.edited.at < timedelta(minutes=1)


def test_code_that_says_its_rule_again_changes_nothing(delayq, report, edited):
    again = every(delayq, "r", report.s(7), DAILY)
    assert (again.revision, again.schedule) == (edited.revision, SIX)
    assert runs(delayq) == [edited.next[0]]


def test_code_that_says_another_rule_leaves_the_schedule_of_the_person(delayq, report, edited):
    rule = every(delayq, "r", report.s(8), HOUR, replace=True)
    assert (rule.schedule, rule.edited.by, rule.edited.schedule) == (SIX, "ann", "every 3600 s")
    [task] = delayq.tasks()
    assert (task.args, task.due) == ((8,), edited.next[0])


def test_back_to_code_ends_an_edit(delayq, rule, edited):
    assert edited.back_to_code()
    write(delayq)
    found = delayq.rule("r")
    assert (found.schedule, found.edited, runs(delayq)) == (DAILY, None, [rule.next[0]])
    assert not found.back_to_code()


def test_the_schedule_that_it_has_is_no_edit(delayq, rule):
    assert not rule.edit(DAILY)
    assert delayq.rule("r") == rule


def test_an_interval_counts_since_1970_as_in_every(delayq, rule):
    assert rule.edit("every 10 s")
    write(delayq)
    assert delayq.rule("r").schedule == "every 10 s"
    assert all(due.second % 10 == 0 and due.microsecond == 0 for due in runs(delayq))


@pytest.mark.parametrize(
    ("schedule", "options"),
    [("0 25 * * *", {}), ("every 0 s", {}), (SIX, {"tz": "Mars/New"}), ("0 6 1 * 1", {})],
)
def test_a_bad_schedule_is_refused_before_anything_is_changed(delayq, rule, schedule, options):
    before = runs(delayq)
    with pytest.raises(InvalidOption):
        rule.edit(schedule, **options)
    assert (delayq.rule("r"), runs(delayq)) == (rule, before)


def test_a_paused_rule_stays_paused(delayq, rule):
    rule.pause()
    assert rule.edit(SIX)
    write(delayq)
    assert (delayq.rule("r").is_paused, runs(delayq)) == (True, [])
    rule.resume()
    write(delayq)
    assert [due.hour for due in runs(delayq)] == [6]


def test_a_rule_that_was_removed_is_set_anew_as_code_says(delayq, report, edited):
    edited.remove()
    assert every(delayq, "r", report.s(7), DAILY).edited is None


def test_a_rule_that_gets_another_key_keeps_its_edit(delayq, report, edited):
    rule = every(delayq, "r", report.s(7).set(delayq_key="other"), DAILY, replace=True)
    assert (rule.schedule, rule.edited.by) == (SIX, "ann")


def test_a_dump_takes_an_edit_along(delayq, redis, edited):
    lines = [json.dumps(line) for line in delayq.dump()]
    redis.flushdb()
    delayq.load(lines)
    assert delayq.rule("r") == edited
    assert delayq.rule("r").edited == edited.edited


# The command.


def test_the_command_edits_and_goes_back_to_code(delayq, rule, run, app):
    found = run("rules", "edit", "r", "--schedule", SIX, "--tz", BERLIN, app=app)
    assert found.output == "rule r has the schedule 0 6 * * * (Europe/Berlin)\n"
    again = run("rules", "edit", "r", "--schedule", SIX, "--tz", BERLIN, app=app)
    assert again.exit_code == 1
    assert again.output == "rule r has the schedule 0 6 * * * (Europe/Berlin) already\n"
    shown = run("rules", "show", "r", app=app).output
    assert "code says 0 9 * * * (UTC)" in shown
    assert "code says" not in run("rules", "list", app=app).output
    assert "changed by" in run("rules", "list", app=app).output
    [line] = run("rules", "list", "--json", app=app).output.splitlines()
    facts = json.loads(line)
    assert (facts["schedule"], facts["edited"]["code_schedule"]) == (SIX, DAILY)
    back = run("rules", "edit", "r", "--back-to-code", app=app)
    assert back.output == "rule r has the schedule 0 9 * * * (UTC)\n"
    assert json.loads(run("rules", "list", "--json", app=app).output)["edited"] is None


def test_the_command_takes_a_schedule_as_the_list_prints_it(delayq, rule, run, app):
    for text in ("every 10 s", "20"):
        assert run("rules", "edit", "r", "--schedule", text, app=app).exit_code == 0
    assert delayq.rule("r").schedule == "every 20 s"


def test_fields_that_restrict_both_days_need_a_dialect(delayq, rule, run, app):
    both = ("rules", "edit", "r", "--schedule", "0 6 1 * 1")
    refused = run(*both, app=app)
    assert refused.exit_code == 1
    assert "dialect" in refused.output
    assert run(*both, "--dialect", "celery", app=app).exit_code == 0
    assert delayq.rule("r").schedule == "0 6 1 * 1"


@pytest.mark.parametrize(
    "words",
    [
        ("edit", "r"),
        ("edit", "r", "--schedule", SIX, "--back-to-code"),
        ("edit", "r", "--back-to-code", "--tz", BERLIN),
        ("pause", "r", "--schedule", SIX),
        ("edit", "--schedule", SIX),
    ],
)
def test_options_that_do_not_fit_are_refused(delayq, rule, run, app, words):
    assert run("rules", *words, app=app).exit_code == 2
    assert delayq.rule("r") == rule


def test_a_rule_that_is_not_there_is_not_edited(delayq, run, app):
    assert run("rules", "edit", "nobody", "--schedule", SIX, app=app).exit_code == 1
