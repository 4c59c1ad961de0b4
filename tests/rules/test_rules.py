"""A rule writes its next runs ahead, as ordinary tasks; any process may, and each slot once."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pytest
from celery import group
from celery.signals import before_task_publish

from celery_delayq.contrib import rule_store as store
from celery_delayq.contrib.rules import writing
from celery_delayq.contrib.rules.step import REST, SPREAD, Writer
from celery_delayq.core.clock import from_ms
from celery_delayq.core.servers.pool import IDLE
from celery_delayq.errors import InvalidOption
from tests.app.support import redis_ms
from tests.support.shards import each

NEW_YEAR = "0 0 1 1 *"
DAILY = "0 9 * * *"


def now(delayq):
    return from_ms(delayq.counts().now_ms)


def runs(delayq, name="r"):
    return sorted(task.due for task in delayq.select(tag=f"every:{name}"))


def write(delayq):
    """Do the work of the writer in a scanner's process, for each shard."""
    return min(writing.write(delayq.services, shard) for shard in delayq.services.entries.shards)


def set_back(delayq, redis, name, **ago):
    """Let a rule's last slot be so long ago, as if no scanner had run since; its runs are gone."""
    delayq.select(tag=f"every:{name}").cancel()
    last = (redis_ms(redis) - round(timedelta(**ago).total_seconds() * 1000)) // 1000 * 1000
    for rules, ahead in zip(each("rules"), each("rules_next"), strict=True):
        row = redis.hget(rules, name)
        if row is not None:
            known = json.loads(row)
            known |= {"last": str(int(last)), "flags": known["flags"].replace("n", "")}
            redis.hset(rules, name, json.dumps(known))
            redis.zadd(ahead, {name: 0})
    return from_ms(last)


def test_its_next_run_is_an_ordinary_task(delayq, report):
    rule = delayq.every("r", report.s(7), DAILY, tz="Europe/Berlin", tags=["tenant:7"])

    [task] = delayq.tasks()
    assert (task.task, task.args, task.tags) == ("report", (7,), ("tenant:7", "every:r"))
    assert task.due == rule.next[0] == min(rule.next)
    assert [moment.astimezone(timezone.utc).minute for moment in rule.next] == [0, 0, 0]
    assert (rule.name, rule.schedule, rule.tz, rule.task) == ("r", DAILY, "Europe/Berlin", "report")
    assert delayq.cancel(task.id)
    assert [*delayq.check()] == []


def test_saying_it_again_changes_nothing(delayq, report):
    first = delayq.every("r", report.s(7), DAILY)
    [before] = delayq.tasks()

    again = delayq.every("r", report.s(7), DAILY)

    assert again.revision == first.revision
    assert [*delayq.tasks()] == [before]


def test_many_processes_that_say_it_at_once_write_one_run(delayq, report):
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            list(pool.map(lambda _: delayq.every("r", report.s(7), DAILY), range(16)))
    assert len(runs(delayq)) == 1


def test_a_changed_rule_replaces_its_written_runs(delayq, report):
    before = delayq.every("r", report.s(7), DAILY)
    rule = delayq.every("r", report.s(8), NEW_YEAR, replace=True)

    [task] = delayq.tasks()
    assert (task.args, task.due, rule.revision) == ((8,), rule.next[0], before.revision + 1)
    assert task.due.month == 1


def test_a_run_that_somebody_moved_or_edited_stays(delayq, report):
    delayq.every("r", report.s(7), DAILY)
    [task] = delayq.tasks()
    delayq.reschedule(task.id, by=60)

    delayq.every("r", report.s(7), NEW_YEAR, replace=True)

    assert task.due + timedelta(seconds=60) in runs(delayq)
    assert len(runs(delayq)) == 2


def test_an_edited_run_stays(delayq, report):
    delayq.every("r", report.s(7), DAILY)
    [task] = delayq.tasks()
    delayq.edit(task.id, kwargs={"tenant": 9}, args=())

    delayq.rule("r").pause()

    assert [kept.kwargs for kept in delayq.tasks()] == [{"tenant": 9}]


def test_a_cancelled_run_is_left_out_and_the_next_one_comes(delayq, report, redis):
    rule = delayq.every("r", report.s(7), timedelta(hours=1))
    [task] = delayq.tasks()
    delayq.cancel(task.id)

    write(delayq)
    assert runs(delayq) == []
    set_back(delayq, redis, "r", minutes=1)
    write(delayq)
    assert runs(delayq) == [rule.next[0]]


def test_a_pause_cancels_the_written_runs_and_a_resume_goes_on(delayq, report):
    rule = delayq.every("r", report.s(7), DAILY)

    assert rule.pause()
    assert (runs(delayq), delayq.rule("r").is_paused, delayq.rule("r").next) == ([], True, ())
    assert not rule.pause()
    write(delayq)
    assert runs(delayq) == []
    assert rule.resume()
    assert not rule.resume()
    assert runs(delayq) == [rule.next[0]]
    assert not delayq.rule("r").is_paused


def test_a_removed_rule_is_gone_with_its_runs(delayq, report, redis):
    rule = delayq.every("r", report.s(7), DAILY)

    assert rule.remove()

    assert (delayq.rule("r"), delayq.rules(), runs(delayq)) == (None, [], [])
    assert not rule.remove()
    assert not rule.pause()
    assert not any(redis.exists(key) for key in (*each("rules"), *each("rules_next")))


def test_a_rule_that_is_set_anew_shares_no_id_or_revision_with_the_one_that_was_removed(
    delayq, report
):
    rule = delayq.every("r", report.s(7), DAILY)
    [before] = delayq.tasks()
    rule.remove()
    anew = delayq.every("r", report.s(7), DAILY)
    [after] = delayq.tasks()
    assert (after.due, after.id != before.id) == (before.due, True)
    assert anew.revision > rule.revision


def test_a_rule_that_was_removed_half_way_may_be_set_anew(delayq, report):
    rule = delayq.every("r", report.s(7), DAILY)
    shard = store.shard_for(delayq.services.entries, "r")
    store.change(shard, "r", "remove")  # and the process died

    assert delayq.rule("r") is None
    anew = delayq.every("r", report.s(7), DAILY)
    assert runs(delayq) == [rule.next[0]]
    assert anew.revision > rule.revision


def test_another_process_clears_up_the_runs_that_a_killed_one_left(delayq, report):
    delayq.every("r", report.s(7), DAILY)
    shard = store.shard_for(delayq.services.entries, "r")
    store.change(shard, "r", "pause")  # and the process died
    assert len(runs(delayq)) == 1

    write(delayq)

    assert runs(delayq) == []
    assert delayq.rule("r").is_paused


def test_a_process_that_clears_up_late_cancels_no_run_that_was_written_since(delayq, report):
    rule = delayq.every("r", report.s(7), DAILY)
    shard = store.shard_for(delayq.services.entries, "r")
    store.change(shard, "r", "pause")
    late = store.find(delayq.services.entries, "r")
    write(delayq)
    rule.resume()

    writing.look_at(delayq.services, shard, late, now(delayq))

    assert runs(delayq) == [rule.next[0]]


def test_a_rule_that_fires_often_has_the_runs_of_a_minute_written(delayq, report):
    delayq.every("r", report.s(7), timedelta(seconds=2))
    found = runs(delayq)
    assert 29 <= len(found) <= 31
    assert {after - before for before, after in pairwise(found)} == {timedelta(seconds=2)}
    delayq.every("f", report.s(7), timedelta(seconds=1))
    assert len(runs(delayq, "f")) <= 62  # and those that came while it was written


def test_an_interval_keeps_its_phase_whenever_it_is_said(delayq, report):
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    delayq.every("r", report.s(7), timedelta(seconds=100))
    assert (runs(delayq)[0] - epoch) % timedelta(seconds=100) == timedelta(0)


# Missed slots.


@pytest.mark.parametrize(("missed", "count"), [("one", 1), ("none", 0), ("all", 5)])
def test_of_slots_at_which_nobody_scanned(delayq, report, redis, missed, count):
    delayq.every("r", report.s(7), timedelta(hours=1), missed=missed)
    last = set_back(delayq, redis, "r", hours=5, seconds=1)

    write(delayq)

    found = runs(delayq)
    over = [due for due in found if due <= now(delayq)]
    assert len(over) == count
    assert len(found) == count + 1
    assert all(due > last for due in found)
    if missed == "one":
        assert now(delayq) - over[0] <= timedelta(hours=1)


def test_of_all_that_was_missed_the_latest_hundred_are_run(delayq, report, redis):
    delayq.every("r", report.s(7), timedelta(hours=1), missed="all")
    set_back(delayq, redis, "r", hours=500)
    write(delayq)
    found = runs(delayq)
    assert len(found) == 101
    assert now(delayq) - found[0] < timedelta(hours=101)


# Each slot once.


def test_a_process_that_computes_late_or_twice_writes_no_slot_again(delayq, report, redis):
    delayq.every("r", report.s(7), timedelta(hours=1), missed="all")
    set_back(delayq, redis, "r", hours=20)
    found = store.find(delayq.services.entries, "r")
    shard = delayq.services.entries.shards[found.shard]

    with ThreadPoolExecutor(8) as pool:
        at = now(delayq)
        look = lambda _: writing.look_at(delayq.services, shard, found, at)  # noqa: E731
        list(pool.map(look, range(16)))

    written = runs(delayq)
    assert len(written) == len({*written}) == 21


def test_a_run_that_was_computed_for_another_revision_is_not_written(delayq, report):
    delayq.every("r", report.s(7), DAILY)
    old = store.find(delayq.services.entries, "r")
    delayq.every("r", report.s(8), NEW_YEAR, replace=True)
    [task] = delayq.tasks()

    shard = delayq.services.entries.shards[old.shard]
    writing.look_at(delayq.services, shard, old, now(delayq) + timedelta(days=400))

    assert [*delayq.tasks()] == [task]


# Keys.


def test_of_a_keyed_rule_one_run_waits_and_a_slot_that_meets_the_holder_is_left_out(
    delayq, report, redis
):
    signature = report.s(7).set(delayq_key="k", delayq_unique_until="finished")
    delayq.every("r", signature, timedelta(seconds=1))
    assert len(runs(delayq)) == 1
    delayq.select(tag="every:r").cancel()
    report.s(1).set(delayq_key="k").delay_for(3600)

    set_back(delayq, redis, "r", seconds=10)
    write(delayq)

    assert runs(delayq) == []
    last = delayq.rule("r").last
    assert now(delayq) - last <= timedelta(seconds=2)
    delayq.cancel(key="k")
    for ahead in each("rules_next"):
        redis.zadd(ahead, {"r": 0}, xx=True)
    write(delayq)
    assert len(runs(delayq)) == 1


# Jitter.


def test_jitter_is_always_the_same_and_differs_by_name(delayq, report):
    for name in "abcdefgh":
        delayq.every(name, report.s(), DAILY, jitter=600)
    before = {name: runs(delayq, name) for name in "abcdefgh"}
    offsets = {due.minute * 60 + due.second + due.microsecond / 1e6 for [due] in before.values()}
    assert len(offsets) == 8
    assert all(0 <= offset < 600 for offset in offsets)
    for name in "abcdefgh":
        delayq.every(name, report.s(), DAILY, jitter=600)
    assert {name: runs(delayq, name) for name in "abcdefgh"} == before
    assert delayq.rule("a").next[0] == before["a"][0]


# Trouble.


def test_a_rule_that_cannot_be_made_stops_nobody_else(delayq, app, report, redis, caplog):
    delayq.every("bad", report.s(7), DAILY)
    delayq.every("good", report.s(7), DAILY)
    for name in ("bad", "good"):
        set_back(delayq, redis, name, days=2)
    for rules in each("rules"):
        row = redis.hget(rules, "bad")
        if row:
            redis.hset(rules, "bad", row.replace(b"report", b"rep\\\\u0000ort"))
            redis.hset(rules, "other", b"what another program wrote")

    write(delayq)

    assert len(runs(delayq, "good")) == 2


def test_a_rule_that_cannot_be_scheduled_stops_nobody_else(delayq, app, report, redis, caplog):
    delayq.every("bad", report.s(7), DAILY)
    delayq.every("good", report.s(7), DAILY)
    for name in ("bad", "good"):
        set_back(delayq, redis, name, days=2)
    for rules in each("rules"):
        if row := redis.hget(rules, "bad"):
            redis.hset(
                rules,
                "bad",
                row.replace(
                    b'options\\\\\\": {}', b'options\\\\\\": {\\\\\\"delayq_late\\\\\\": 5}'
                ),
            )

    write(delayq)

    assert len(runs(delayq, "good")) == 2
    assert runs(delayq, "bad") == []
    assert "rule bad: its next run cannot be made" in caplog.text


def test_paused_rules_and_what_is_none_keep_no_other_from_its_turn(
    delayq, report, redis, monkeypatch
):
    monkeypatch.setattr(store, "MOST_AHEAD", 2)
    for number in range(5):
        delayq.every(f"p{number}", report.s(), DAILY).pause()
    for ahead in each("rules_next"):
        redis.zadd(ahead, {f"nothing{number}": 0 for number in range(5)})
    delayq.every("good", report.s(), DAILY)
    set_back(delayq, redis, "good", days=2)

    for _ in range(6):
        write(delayq)

    assert len(runs(delayq, "good")) == 2
    assert {name for ahead in each("rules_next") for name in redis.zrange(ahead, 0, -1)} == {
        b"good"
    }


def test_a_task_that_would_run_at_once_is_refused(delayq, app, report):
    app.conf.task_always_eager = True
    with pytest.raises(InvalidOption, match="task_always_eager is True"):
        delayq.every("r", report.s(), DAILY)


def test_the_tags_of_the_signature_stay(delayq, report):
    delayq.every("r", report.s().set(delayq_tags=["own"]), DAILY, tags=["more"])
    [task] = delayq.tasks()
    assert set(task.tags) == {"own", "more", "every:r"}


def test_to_say_it_again_sends_no_signal_of_a_message(delayq, report):
    heard = []

    def receiver(**_):
        heard.append(1)

    delayq.every("r", report.s(), DAILY)
    before_task_publish.connect(receiver, weak=False)
    try:
        delayq.every("r", report.s(), DAILY)
    finally:
        before_task_publish.disconnect(receiver)
    assert heard == []


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("", {}, "name is ''; expected text of 1 to 200 bytes"),
        ("ä" * 101, {}, "expected text of 1 to 200 bytes"),
        ("a\0b", {}, "without NUL"),
        (5, {}, "name is 5"),
        ("r", {"missed": "some"}, "missed is 'some'; expected one, none or all"),
        ("r", {"jitter": -1}, "jitter is -1; expected a number of seconds from 0 to 86400"),
        ("r", {"jitter": True}, "jitter is True"),
        ("r", {"tags": "x"}, "tags is 'x'"),
        ("r", {"tags": ["x" * 300]}, "tag is 'xxx"),
        ("r", {"tz": "Mars/Base"}, "the name of a time zone"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_written(  # noqa: PLR0917
    delayq, report, redis, name, options, said
):
    with pytest.raises(InvalidOption) as caught:
        delayq.every(name, report.s(), DAILY, **options)
    assert said in str(caught.value)
    assert not any(redis.exists(key) for key in each("rules"))


def test_a_canvas_and_arguments_that_are_no_json_are_refused(delayq, report):
    with pytest.raises(InvalidOption, match="a plain task"):
        delayq.every("r", group(report.s(), report.s()), DAILY)
    with pytest.raises(InvalidOption, match="arguments that are JSON"):
        delayq.every("r", report.s(object()), DAILY)


def test_rules_are_listed_by_name_and_by_tag(delayq, report):
    for name in ("b", "a", "c"):
        delayq.every(name, report.s(), DAILY, tags=["odd"] if name != "b" else [])
    assert [rule.name for rule in delayq.rules()] == ["a", "b", "c"]
    assert [rule.name for rule in delayq.rules(tag="odd")] == ["a", "c"]
    assert delayq.rule("nobody") is None


def test_the_writer_looks_every_half_minute_while_nothing_is_due(delayq, report):
    writer = Writer(delayq)
    assert writer._look() == REST
    assert REST * SPREAD < IDLE
    delayq.every("r", report.s(), timedelta(seconds=40))
    assert 0 < writer._look() <= REST
