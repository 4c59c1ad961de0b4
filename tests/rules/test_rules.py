"""A rule writes its next runs ahead, as ordinary tasks; any process may, and each slot once."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pytest
from celery.signals import before_task_publish

from celery_delayq.contrib import rule_store as store
from celery_delayq.contrib.rule_store import Run, Stored
from celery_delayq.contrib.rules import writing
from celery_delayq.contrib.rules.plan import Plan, Timing, plan_of
from celery_delayq.contrib.rules.step import REST, SPREAD, Writer
from celery_delayq.core.clock import EPOCH, from_ms
from celery_delayq.core.servers.pool import IDLE
from tests.rules.support import (
    DAILY,
    HOUR,
    NEW_YEAR,
    about_an_hour,
    every,
    now,
    runs,
    set_back,
    set_fields,
    wake,
    write,
)
from tests.support.shards import each


def look_at(delayq, found, at=None):
    """Do the work of a writer that has read this rule before."""
    shard = delayq.services.entries.shards[found.shard]
    writing.look_at(delayq.services, shard, found, at or now(delayq))


@pytest.fixture
def killed_amid(delayq):
    """Change the rule r as a process does that is killed before it has cleared up its runs."""
    shard = store.shard_for(delayq.services.entries, "r")
    return lambda change: store.change(shard, "r", change)


def test_the_next_run_of_a_rule_is_an_ordinary_task(delayq, report):
    rule = every(delayq, "r", report.s(7), DAILY, tz="Europe/Berlin", tags=["tenant:7"])
    [task] = delayq.tasks()
    assert (task.task, task.args, task.tags) == ("report", (7,), ("tenant:7", "every:r"))
    assert task.due == rule.next[0] == min(rule.next)
    assert [moment.astimezone(timezone.utc).minute for moment in rule.next] == [0, 0, 0]
    assert (rule.name, rule.schedule, rule.tz, rule.task) == ("r", DAILY, "Europe/Berlin", "report")
    assert delayq.cancel(task.id)
    assert [*delayq.check()] == []


def test_saying_it_again_changes_nothing(delayq, report, rule):
    [before] = delayq.tasks()
    again = every(delayq, "r", report.s(7), DAILY)
    assert again.revision == rule.revision
    assert [*delayq.tasks()] == [before]


def test_a_changed_rule_replaces_its_written_runs(delayq, report):
    before = every(delayq, "r", report.s(7), DAILY)
    rule = every(delayq, "r", report.s(8), NEW_YEAR, replace=True)
    [task] = delayq.tasks()
    assert (task.args, task.due, rule.revision) == ((8,), rule.next[0], before.revision + 1)
    assert task.due.month == 1


def test_a_run_that_a_user_moved_stays(delayq, report, rule):
    [task] = delayq.tasks()
    delayq.reschedule(task.id, by=60)
    rule = every(delayq, "r", report.s(7), NEW_YEAR, replace=True)
    moved, first = runs(delayq)
    assert (moved, first.month, first.day) == (task.due + timedelta(seconds=60), 1, 1)
    assert rule.next[:2] == (*runs(delayq),)


def test_a_run_that_a_user_edited_stays(delayq, rule):
    [task] = delayq.tasks()
    delayq.edit(task.id, kwargs={"tenant": 9}, args=())
    delayq.rule("r").pause()
    assert [kept.kwargs for kept in delayq.tasks()] == [{"tenant": 9}]


def test_a_cancelled_run_is_left_out_and_the_next_one_comes(delayq, report, redis):
    rule = every(delayq, "r", report.s(7), about_an_hour(redis))
    [task] = delayq.tasks()
    delayq.cancel(task.id)
    write(delayq)
    assert runs(delayq) == []
    set_back(delayq, redis, "r", minutes=1)
    write(delayq)
    assert runs(delayq) == [rule.next[0]]


def test_a_pause_cancels_the_written_runs_and_a_resume_goes_on(delayq, rule):
    assert rule.pause()
    assert (runs(delayq), delayq.rule("r").is_paused, delayq.rule("r").next) == ([], True, ())
    assert not rule.pause()
    write(delayq)
    assert runs(delayq) == []
    assert rule.resume()
    assert not rule.resume()
    write(delayq)
    assert runs(delayq) == [rule.next[0]]
    assert not delayq.rule("r").is_paused


def test_a_removed_rule_is_gone_with_its_runs(delayq, rule, redis):
    assert rule.remove()
    assert (delayq.rule("r"), delayq.rules(), runs(delayq)) == (None, [], [])
    assert not rule.remove()
    assert not rule.pause()
    assert not any(redis.exists(key) for key in (*each("rules"), *each("rules_next")))


def test_a_rule_that_is_set_anew_shares_no_id_or_revision_with_the_one_that_was_removed(
    delayq, report, rule
):
    [before] = delayq.tasks()
    rule.remove()
    anew = every(delayq, "r", report.s(7), DAILY)
    [after] = delayq.tasks()
    assert (after.due, after.id != before.id) == (before.due, True)
    assert anew.revision > rule.revision


def test_a_rule_that_was_removed_half_way_may_be_set_anew(delayq, report, rule, killed_amid):
    killed_amid("remove")
    assert delayq.rule("r") is None
    anew = every(delayq, "r", report.s(7), DAILY)
    assert runs(delayq) == [rule.next[0]]
    assert anew.revision > rule.revision


def test_another_process_clears_up_the_runs_that_a_killed_one_left(delayq, rule, killed_amid):
    killed_amid("pause")
    assert len(runs(delayq)) == 1
    write(delayq)
    assert runs(delayq) == []
    assert delayq.rule("r").is_paused


def test_a_process_that_clears_up_late_cancels_no_run_that_was_written_since(
    delayq, rule, killed_amid
):
    killed_amid("pause")
    late = store.find(delayq.services.entries, "r")
    write(delayq)
    rule.resume()
    write(delayq)
    look_at(delayq, late)
    assert runs(delayq) == [rule.next[0]]


def test_a_rule_that_fires_often_has_the_runs_of_a_minute_written(delayq, report):
    every(delayq, "r", report.s(7), timedelta(seconds=2))
    found = runs(delayq)
    assert 29 <= len(found) <= 31
    assert {after - before for before, after in pairwise(found)} == {timedelta(seconds=2)}
    every(delayq, "f", report.s(7), timedelta(seconds=1))
    assert len(runs(delayq, "f")) <= 62  # and those that came while it was written


# Missed slots.


@pytest.mark.parametrize(
    ("missed", "count", "told"),
    [("one", 1, [(4, "missed")]), ("none", 0, [(5, "missed")]), ("all", 5, [])],
)
def test_missed_says_which_slots_run_that_no_scanner_saw_and_the_others_are_counted(  # noqa: PLR0917
    delayq, report, redis, omitted, missed, count, told
):
    every(delayq, "r", report.s(7), HOUR, missed=missed)
    last = set_back(delayq, redis, "r", hours=5, seconds=1)

    write(delayq)

    found = runs(delayq)
    over = [due for due in found if due <= now(delayq)]
    assert (len(over), len(found)) == (count, count + 1)
    assert all(due > last for due in found)
    assert omitted == told
    if missed == "one":
        assert now(delayq) - over[0] <= HOUR


def test_of_all_that_was_missed_the_latest_hundred_are_run(delayq, report, redis):
    every(delayq, "r", report.s(7), HOUR, missed="all")
    set_back(delayq, redis, "r", hours=500)
    write(delayq)
    found = runs(delayq)
    assert len(found) == 101
    assert now(delayq) - found[0] < timedelta(hours=101)


# Each slot once.


def test_a_process_that_computes_late_or_twice_writes_no_slot_again(delayq, report, redis):
    every(delayq, "r", report.s(7), HOUR, missed="all")
    set_back(delayq, redis, "r", hours=20)
    found, at = store.find(delayq.services.entries, "r"), now(delayq)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: look_at(delayq, found, at), range(16)))
    written = runs(delayq)
    assert len(written) == len({*written}) == 21


def test_a_run_that_was_computed_for_another_revision_is_not_written(delayq, report, rule):
    old = store.find(delayq.services.entries, "r")
    every(delayq, "r", report.s(8), NEW_YEAR, replace=True)
    [task] = delayq.tasks()
    look_at(delayq, old, now(delayq) + timedelta(days=400))
    assert [*delayq.tasks()] == [task]


# Keys.


def test_of_a_keyed_rule_one_run_waits_and_a_slot_that_meets_the_holder_is_left_out(
    delayq, report, redis
):
    signature = report.s(7).set(delayq_key="k", delayq_unique_until="finished")
    every(delayq, "r", signature, timedelta(seconds=1))
    assert len(runs(delayq)) == 1
    delayq.select(tag="every:r").cancel()
    report.s(1).set(delayq_key="k").delay_for(3600)

    set_back(delayq, redis, "r", seconds=10)
    before = now(delayq)
    write(delayq)

    assert runs(delayq) == []
    assert before - timedelta(seconds=1) <= delayq.rule("r").last <= now(delayq)
    delayq.cancel(key="k")
    wake(redis, "r")
    write(delayq)
    assert len(runs(delayq)) == 1


# Jitter.


def test_jitter_is_always_the_same_and_differs_by_name(delayq, report):
    for name in "abcdefgh":
        every(delayq, name, report.s(), DAILY, jitter=600)
    before = {name: runs(delayq, name) for name in "abcdefgh"}
    offsets = {due.minute * 60 + due.second + due.microsecond / 1e6 for [due] in before.values()}
    assert len(offsets) == 8
    assert all(0 <= offset < 600 for offset in offsets)
    for name in "abcdefgh":
        every(delayq, name, report.s(), DAILY, jitter=600)
    assert {name: runs(delayq, name) for name in "abcdefgh"} == before
    assert delayq.rule("a").next[0] == before["a"][0]


# Trouble.


@pytest.mark.parametrize("is_read", [False, True], ids=["unreadable", "refused"])
def test_a_rule_whose_run_cannot_be_made_stops_no_other(  # noqa: PLR0917
    delayq, report, redis, spoil, caplog, is_read
):
    for name in ("bad", "good"):
        every(delayq, name, report.s(7), DAILY)
    for name in ("bad", "good"):
        set_back(delayq, redis, name, days=2)
    if is_read:
        spoil("bad")
    else:
        set_fields(redis, "bad", plan=lambda plan: plan.replace("report", r"rep\u0000ort"))
    for rules in each("rules"):
        redis.hset(rules, "other", b"what another program wrote")

    write(delayq)

    assert len(runs(delayq, "good")) == 2
    assert runs(delayq, "bad") == []
    assert "rule bad: its next run cannot be made" in caplog.text


def test_paused_rules_and_names_of_none_keep_no_other_from_its_turn(delayq, report, redis, limits):
    limits(rules_claimed=2)
    for number in range(5):
        every(delayq, f"p{number}", report.s(), DAILY).pause()
    for ahead in each("rules_next"):
        redis.zadd(ahead, {f"nothing{number}": 0 for number in range(5)})
    every(delayq, "good", report.s(), DAILY)
    set_back(delayq, redis, "good", days=2)

    for _ in range(6):
        write(delayq)

    assert len(runs(delayq, "good")) == 2
    assert {name for ahead in each("rules_next") for name in redis.zrange(ahead, 0, -1)} == {
        b"good"
    }


def test_the_tags_of_the_signature_stay(delayq, report):
    every(delayq, "r", report.s().set(delayq_tags=["own"]), DAILY, tags=["more"])
    [task] = delayq.tasks()
    assert set(task.tags) == {"own", "more", "every:r"}


def test_rules_are_listed_by_name_and_by_tag(delayq, report):
    for name in ("b", "a", "c"):
        every(delayq, name, report.s(), DAILY, tags=["odd"] if name != "b" else [])
    assert [rule.name for rule in delayq.rules()] == ["a", "b", "c"]
    assert [rule.name for rule in delayq.rules(tag="odd")] == ["a", "c"]
    assert delayq.rule("nobody") is None


def test_the_writer_looks_every_half_minute_while_nothing_is_due(delayq, report):
    writer = Writer(delayq)
    assert writer.look() == REST
    assert REST * SPREAD < IDLE
    every(delayq, "r", report.s(), timedelta(seconds=40))
    assert 0 < writer.look() <= REST


@pytest.fixture
def published():
    """The ids of messages that were about to be published, one for each call."""
    ids = []

    def receiver(headers, **_):
        ids.append(headers["id"])

    before_task_publish.connect(receiver, weak=False)
    yield ids
    before_task_publish.disconnect(receiver)


def test_writers_at_the_same_rules_call_apply_async_once_for_a_run(delayq, report, published):
    for number in range(20):
        delayq.every(f"r{number}", report.s(), timedelta(seconds=20))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: write(delayq), range(16)))
    assert len(published) == len({*published}) == delayq.counts().scheduled >= 60


def test_to_set_repeat_and_change_a_rule_calls_no_apply_async_and_a_writer_does_so_once(
    delayq, report, published
):
    for _ in range(2):
        delayq.every("r", report.s(), DAILY)
    rule = delayq.every("r", report.s(1), DAILY, replace=True)
    rule.pause()
    rule.resume()
    assert (published, runs(delayq)) == ([], [])
    write(delayq)
    [task] = delayq.tasks()
    assert published == [task.id]


def test_a_claim_lapses_if_its_process_is_killed(delayq, report, redis):
    delayq.every("r", report.s(), DAILY)
    shard = store.shard_for(delayq.services.entries, "r")
    assert store.claim(shard).names == [b"r"]  # and the process is killed

    write(delayq)
    assert runs(delayq) == []
    [(_, lapses)] = [
        each for ahead in each("rules_next") for each in redis.zrange(ahead, 0, -1, withscores=True)
    ]
    assert 0 < int(lapses) - delayq.counts().now_ms <= store.CLAIM_MS
    wake(redis, "r")  # as it has lapsed
    write(delayq)
    assert len(runs(delayq)) == 1


def test_a_process_goes_on_with_its_own_claim_unless_another_one_has_it(delayq, report, redis):
    delayq.every("r", report.s(), DAILY)
    shard = store.shard_for(delayq.services.entries, "r")
    late = store.claim(shard).claim
    wake(redis, "r")
    claim = store.claim(shard).claim
    writing.write_claimed(delayq.services, [(shard.number, late, [])])
    assert runs(delayq) == []
    writing.write_claimed(delayq.services, [(shard.number, claim, [])])
    assert len(runs(delayq)) == 1


def test_a_claim_on_a_shard_that_the_store_has_no_more_keeps_back_no_other(delayq, report):
    delayq.every("r", report.s(), DAILY)
    entries = delayq.services.entries
    shard = store.shard_for(entries, "r")
    claims = [(len(entries.shards), "1", []), (shard.number, store.claim(shard).claim, [])]
    writing.write_claimed(delayq.services, claims)
    assert len(runs(delayq)) == 1


def test_a_claim_is_given_up_at_once_by_a_process_that_cannot_make_the_run(app, delayq, report):
    delayq.every("r", report.s(), DAILY)
    app.conf.task_always_eager = True
    write(delayq)
    assert (runs(delayq), delayq.counts().troubled_rules) == ([], 1)
    app.conf.task_always_eager = False
    write(delayq)
    assert (len(runs(delayq)), delayq.counts().troubled_rules) == (1, 0)


def test_while_its_key_is_held_no_run_is_made(delayq, report, redis, published):
    report.s(1).set(delayq_key="k").delay_for(3600)
    delayq.every("r", report.s().set(delayq_key="k"), HOUR)
    published.clear()
    write(delayq)
    set_back(delayq, redis, "r", hours=2)
    write(delayq)
    assert published == []


# A keyed rule that fires often, and runs that no scanner delivered in time.


SECOND = timedelta(seconds=1)
NOON = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)


@pytest.fixture
def rest(delayq, redis):
    """Seconds until the writer looks again, after it has looked at all rules."""

    def rest():
        wake(redis)
        return write(delayq)

    return rest


@pytest.fixture
def keyed(report):
    return report.s().set(delayq_key="k", delayq_unique_until="finished")


def test_the_writer_looks_again_when_the_only_run_is_due(delayq, keyed, rest):
    every(delayq, "r", keyed, 2 * SECOND)
    assert rest() <= 2


def test_the_writer_looks_at_a_held_key_when_the_slot_comes(delayq, keyed, report, rest):
    report.s(1).set(delayq_key="k").delay_for(3600)
    every(delayq, "r", keyed, 3 * SECOND)
    assert rest() <= 3 < writing.AGAIN.total_seconds()


@pytest.mark.parametrize(
    ("missed", "key", "run"),
    [
        ("none", "k", [False, True, True]),
        ("none", "", [False, False, False]),
        ("one", "k", [False, False, True]),
        ("one", "", [False, False, True]),
    ],
)
def test_a_slot_whose_key_has_just_come_free_was_not_missed(missed, key, run):
    plan = Plan("{}", Timing("every 3 s"), missed, 0.0, (), key)
    rule = Stored("r", 0, {"home": "r"}, 1, NOON - 9 * SECOND, "-")
    slots, _ = writing._slots(rule, plan, NOON)
    assert [wanted for slot, wanted in slots if slot <= NOON] == run


# A run that was written ahead, and that no scanner delivered in time, counts as missed too.

LONG = timedelta(days=300)  # between two slots: so none of them comes during a test


@pytest.fixture
def written(delayq, report, redis):
    """Return a function that writes the run of a slot of the past, as if that had been to come."""

    def written(slot_of, schedule=LONG, signature=None, *, is_ahead=True, **options):
        every(delayq, "r", signature or report.s(), schedule, replace=True, **options)
        set_back(delayq, redis, "r", days=1000)
        rule = store.find(delayq.services.entries, "r")
        slot = slot_of(from_ms(delayq.counts().now_ms))
        entry = writing.entry_of(delayq.services, rule, plan_of(rule), slot, is_ahead=is_ahead)
        due = store.ms_of(slot)
        shard = delayq.services.entries.shards[rule.shard]
        assert store.fire(shard, rule, due, [Run(due, due, entry)]) == ["done"]

    return written


@pytest.fixture
def delivered(delayq, written):
    """Return a function that says whether a run is delivered that was due at a slot of the past."""

    def delivered(*what, **options):
        written(*what, **options)
        return delayq.hand_over() == 1

    return delivered


def latest(now):
    return EPOCH + (now - EPOCH) // LONG * LONG


def before_latest(now):
    return latest(now) - LONG


OFTEN = timedelta(seconds=2)


def before_latest_of_often(now):
    return EPOCH + ((now - EPOCH) // OFTEN - 1) * OFTEN


def ago(**span):
    return lambda now: now - timedelta(**span)


@pytest.mark.parametrize(
    ("missed", "slot", "is_delivered"),
    [
        ("one", latest, True),
        ("one", before_latest, False),
        ("none", ago(seconds=1), True),
        ("none", ago(minutes=2), False),
        ("all", before_latest, True),
    ],
)
def test_a_late_run_is_left_out_as_missed_says(delivered, missed, slot, is_delivered):
    assert delivered(slot, missed=missed) == is_delivered


@pytest.mark.parametrize("missed", ["one", "none"])
def test_a_run_is_missed_once_the_next_one_has_come_though_that_is_soon(delivered, missed):
    short = timedelta(seconds=20)
    assert short < writing.SPARED

    def before_latest(now):
        return EPOCH + ((now - EPOCH) // short - 1) * short

    assert not delivered(before_latest, short, missed=missed)


@pytest.mark.parametrize("missed", ["one", "none"])
def test_of_the_runs_of_each_second_at_most_one_goes_after_half_a_minute_without_a_scanner(
    delayq, report, redis, missed
):
    every(delayq, "r", report.s(7), SECOND, missed=missed)
    set_back(delayq, redis, "r", seconds=27)
    found = store.find(delayq.services.entries, "r")
    plan, shard = plan_of(found), delayq.services.entries.shards[found.shard]
    slots = [found.last + number * SECOND for number in range(1, 26)]
    entries = [writing.entry_of(delayq.services, found, plan, slot) for slot in slots]
    dues = [store.ms_of(slot) for slot in slots]
    runs = [Run(due, due, entry) for due, entry in zip(dues, entries, strict=True)]
    assert store.fire(shard, found, dues[-1], runs) == ["done"] * 25

    begun = delayq.counts().now_ms
    write(delayq)
    delayq.hand_over()
    come = delayq.counts().now_ms // 1000 - begun // 1000  # slots, meanwhile

    events = [event.what for event in delayq.history(200)]
    assert (missed == "one") <= events.count("handed_over") <= 1 + come
    assert events.count("skipped") >= 24


@pytest.mark.parametrize("missed", ["one", "none"])
def test_a_run_that_was_written_after_its_slot_is_spared_for_a_while(delivered, missed):
    assert delivered(before_latest_of_often, OFTEN, is_ahead=False, missed=missed)
    assert not delivered(ago(hours=1), OFTEN, is_ahead=False, missed=missed)


def test_of_missed_slots_with_a_key_the_latest_gets_the_run(delayq, redis, keyed):
    every(delayq, "r", keyed, SECOND)
    set_back(delayq, redis, "r", seconds=25)
    now = from_ms(delayq.counts().now_ms)
    write(delayq)
    [due] = runs(delayq)
    assert due > now - SECOND


def test_a_missed_run_that_still_has_the_key_does_not_cost_the_latest_slot_its_run(
    delayq, written, keyed, rest
):
    written(before_latest, signature=keyed)
    rest()
    [due] = runs(delayq)
    assert due == latest(from_ms(delayq.counts().now_ms))
    assert delayq.hand_over() == 1


def test_a_missed_run_that_is_paused_keeps_the_key(delayq, written, keyed, rest):
    written(before_latest, signature=keyed)
    delayq.pause(all=True)
    before = runs(delayq)
    rest()
    assert runs(delayq) == before


def test_a_missed_run_that_runs_however_late_keeps_the_key(delayq, written, keyed, rest):
    written(before_latest, signature=keyed.set(delayq_late="run"))
    before = runs(delayq)
    rest()
    assert runs(delayq) == before


def test_the_late_policy_of_the_signature_or_the_task_wins(app, delivered, report):
    assert delivered(before_latest, signature=report.s().set(delayq_late="run"))

    @app.task(name="forgiving", delayq_late="skip", delayq_grace=10**9)
    def forgiving(): ...

    assert delivered(before_latest, signature=forgiving.s())
