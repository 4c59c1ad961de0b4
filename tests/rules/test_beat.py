"""`beat_schedule` as rules: workers set them, and a beat process leaves them alone."""

import logging

import pytest
from celery.beat import BeatLazyFunc, ScheduleEntry, Scheduler, Service
from celery.schedules import crontab, schedule, solar
from celery.signals import beat_init

from celery_delayq.contrib import rule_store as store
from celery_delayq.contrib.rules.declared import Declared
from celery_delayq.contrib.rules.step import AWAY, Guard
from celery_delayq.core import clock
from celery_delayq.core.clock import EPOCH
from tests.rules.support import DAILY, HOUR, NEW_YEAR, later, set_fields, write
from tests.support.network import CUT

pytestmark = pytest.mark.libraries

NO_TIME = HOUR - HOUR
NINE = crontab(hour=9, minute=0)
ENTRY = {"task": "report", "schedule": NINE, "args": (7,), "options": {"priority": 3}}


@pytest.fixture
def app(delayq_app, url):
    def make(**schedule):
        app = delayq_app(
            url,
            delayq_beat=True,
            beat_schedule=schedule,
            timezone="Europe/Berlin",
            result_expires=None,  # or beat has an entry of its own
        )

        @app.task(name="report", shared=False)
        def report(tenant=0):
            pass

        return app

    return make


def named(app):
    """Let a worker of this app look at its `beat_schedule`."""
    declared = Declared(app.delayq.services, runs_tasks=True)
    declared.name()
    return declared


def args(app, name="a"):
    write(app.delayq)
    return [task.args for task in app.delayq.tasks(tag=f"every:{name}")]


def test_the_entries_of_beat_schedule_are_rules(app):
    app = app(a=ENTRY, b={"task": "report", "schedule": 30.0})
    app.add_periodic_task(60.0, app.tasks["report"].s(8), name="c")

    named(app)

    delayq = app.delayq
    assert [(rule.name, rule.schedule, rule.source) for rule in delayq.rules()] == [
        ("a", "0 9 * * *", "beat"),
        ("b", "every 30 s", "beat"),
        ("c", "every 60 s", "beat"),
    ]
    assert delayq.rule("a").tz == "Europe/Berlin"
    assert args(app) == [(7,)]
    [line] = [line for line in delayq.dump() if "every:a" in line.get("tags", ())]
    assert line["message"]["properties"]["priority"] == 3


def test_the_clean_up_of_the_result_backend_is_one_of_them(app, monkeypatch):
    app = app()
    app.conf.result_expires = 60
    monkeypatch.setattr(type(app.backend), "supports_autoexpire", False)
    named(app)
    rule = app.delayq.rule("celery.backend_cleanup")
    assert (rule.task, rule.schedule) == ("celery.backend_cleanup", "0 4 * * *")


def test_without_the_setting_nothing_is_set(app):
    app = app(a=ENTRY)
    app.conf.delayq_beat = False
    object.__setattr__(app.delayq.services.settings, "beat", False)
    named(app)
    assert app.delayq.rules() == []


def test_an_entry_that_cannot_be_a_rule_is_named_and_stops_no_other(app, caplog):
    sun = solar.__new__(solar)  # to create one takes a library
    app = app(
        a={**ENTRY, "schedule": sun},
        b={**ENTRY, "args": [BeatLazyFunc(int)]},
        c=ENTRY,
        d={"when": 5},
        e={"schedule": 5},
        f={**ENTRY, "kwargs": [1]},
        g={**ENTRY, "schedule": "* * * * *"},
        h={**ENTRY, "schedule": -1},
    )
    named(app)
    assert [rule.name for rule in app.delayq.rules()] == ["c"]
    stays = {line.partition(" stays with beat: ")[::2] for line in caplog.messages}
    why = {name.removeprefix("beat_schedule: "): text for name, text in stays}
    assert why.keys() >= {*"abdefgh"}
    assert why["a"].startswith("schedule is 'solar'")
    assert why["b"].startswith("args is 'BeatLazyFunc'")


def test_a_rule_of_that_name_that_was_set_otherwise_stays(app, caplog):
    app = app(a=ENTRY)
    app.delayq.every("a", app.tasks["report"].s(), NEW_YEAR)
    named(app)
    assert (app.delayq.rule("a").schedule, app.delayq.rule("a").source) == (NEW_YEAR, "")
    assert "a is left out" in caplog.text


def test_a_worker_without_the_setting_removes_them_too(app, redis):
    old = app(a=ENTRY)
    named(old)
    other = app()
    object.__setattr__(other.delayq.services.settings, "beat", False)
    later(redis, minutes=11)
    named(other)
    assert old.delayq.rules() == []


# Two processes that differ.


def test_two_that_alternate_are_warned_of_once_with_both_hosts(app, monkeypatch, caplog):
    apps = {"old": app(), "new": app()}
    for host, argument in [("old", 7), ("new", 8), ("old", 7), ("new", 8), ("old", 7)]:
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        signature = apps[host].tasks["report"].s(argument)
        apps[host].delayq.every("alternates", signature, DAILY)
    [found] = [each for each in caplog.records if "different rules" in each.message]
    assert "this process, on old, and one on new" in found.message


def test_a_lower_version_changes_nothing_and_a_higher_one_all(app):
    old, new = app(), app()
    say = lambda app, number, **given: app.delayq.every(  # noqa: E731
        "r", app.tasks["report"].s(number), DAILY, **given
    )
    assert say(new, 8, version=2).version == 2
    assert say(old, 7, version=1).version == 2
    assert say(old, 7).version == 2
    assert args(new, "r") == [(8,)]
    assert say(new, 8, version=3).version == 3
    assert say(old, 7, version=2).version == 3
    assert args(new, "r") == [(8,)]
    assert say(old, 9, version=4).version == 4
    assert args(new, "r") == [(9,)]


# Beat.


class Noting(Scheduler):
    """Notes the entries that it would send."""

    def __init__(self, *args, **options):
        self.sent = []
        super().__init__(*args, **options)

    def apply_async(self, entry, *_, **__):
        self.sent.append(entry.name)


@pytest.fixture
def beat(app):
    """A beat process's scheduler, with the guard of `DelayQ`."""

    def beat(app):
        scheduler = Noting(app, lazy=True)
        Guard(app.delayq.services).watch(scheduler)
        return scheduler, scheduler.sent

    return beat


@pytest.fixture
def go_away(between):
    """Let the store be away, and call this whenever it is asked."""

    def go_away(asked):
        def away():
            asked()
            return CUT

        between.before("rules", away)

    return go_away


def entry_of(app, name="a", schedule=NINE):
    return ScheduleEntry(name=name, task="report", schedule=schedule, app=app)


def long_ago(app, redis):
    """Let all rules have been set two days ago."""
    for rule in app.delayq.rules():
        set_fields(redis, rule.name, since=lambda ms: str(int(ms) - 2 * 86_400_000))


def test_beat_leaves_a_rule_alone_and_sends_all_others_also_while_the_store_is_away(
    app, beat, redis, go_away
):
    app = app(a=ENTRY)
    named(app)
    long_ago(app, redis)
    scheduler, sent = beat(app)
    scheduler.schedule = {}
    for name in ("a", "b"):
        scheduler.apply_entry(entry_of(app, name))
        scheduler.apply_async(entry_of(app, name), advance=False)
    assert sent == ["b", "b"]

    go_away(lambda: None)
    for name in ("a", "b"):
        scheduler.apply_entry(entry_of(app, name))
    assert sent == ["b"] * 3


def test_the_slot_in_which_a_rule_was_set_is_still_sent(app, beat):
    app = app(a=ENTRY)
    named(app)
    scheduler, sent = beat(app)
    scheduler.apply_entry(entry_of(app))  # its slot is the minute that has begun
    assert sent == ["a"]


def test_a_store_that_is_away_is_not_asked_for_each_entry(app, beat, go_away, monkeypatch):
    asked, moment = [], [0.0]
    app = app(a=ENTRY)
    scheduler, sent = beat(app)
    go_away(lambda: asked.append(moment[0]))
    monkeypatch.setattr("celery_delayq.core.clock.monotonic", lambda: moment[0])
    for moment[0] in (0.0, 1.0, AWAY - 1, AWAY, AWAY + 1):
        scheduler.apply_entry(entry_of(app))
    assert asked == [0.0, AWAY]
    assert sent == ["a"] * 5


@pytest.mark.parametrize("name", [5, None, "\udcff"])
def test_an_entry_whose_name_no_rule_can_have_is_sent(app, beat, name, caplog):
    caplog.set_level(logging.ERROR, "celery.beat")  # a report with this name cannot be sent on
    app = app()
    scheduler, sent = beat(app)
    scheduler.apply_entry(entry_of(app, name))
    assert sent == [name]


def test_beat_takes_over_the_slots_of_a_rule_that_is_an_interval(app, beat, redis):
    app = app(a={"task": "report", "schedule": 3600.0})
    named(app)
    long_ago(app, redis)
    set_fields(redis, "a", offset=lambda ms: str((int(ms) + 600_000) % 3_600_000))
    [rule] = store.each(app.delayq.services.entries)
    scheduler, sent = beat(app)
    began = clock.utc_now() - HOUR
    entry = ScheduleEntry(
        name="a", task="report", schedule=schedule(3600.0), last_run_at=began, app=app
    )
    scheduler.schedule = {"a": entry}
    scheduler.populate_heap()
    scheduler.reserve(entry)  # as a tick does
    scheduler.apply_entry(entry)
    app.delayq.rule("a").remove()
    assert (scheduler.schedule["a"].last_run_at - EPOCH - rule.offset) % HOUR == NO_TIME
    assert (sent, scheduler._heap) == ([], None)


def test_a_beat_process_that_begins_leaves_a_rule_alone_until_that_is_removed(app, redis):
    app = app(a=ENTRY)
    named(app)
    long_ago(app, redis)
    service = Service(app, scheduler_cls=lambda **_: Scheduler(app, lazy=True))
    beat_init.send(sender=service)
    service.scheduler.apply_entry(entry_of(app))
    assert redis.llen("celery") == 0
    app.delayq.rule("a").remove()
    service.scheduler.apply_entry(entry_of(app))
    assert redis.llen("celery") == 1
