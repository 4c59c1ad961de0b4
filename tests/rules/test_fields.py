"""All that an entry of beat has is kept, or refused by its name: no field goes unseen."""

import inspect
import json
from datetime import timedelta

import pytest
from celery import beat, schedules
from celery.app.defaults import NAMESPACES
from celery.schedules import BaseSchedule, crontab, schedule, solar

from celery_delayq.contrib.rules.declared import Declared
from tests.rules.fields import fields_of, listed
from tests.rules.support import write

# A Celery of before some of them came is compared as well.
pytestmark = pytest.mark.libraries


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (beat.ScheduleEntry, ()),
        (beat.Service, ()),
        (beat.Scheduler, ()),
        (schedule, ()),
        (crontab, (BaseSchedule,)),
        (solar, (BaseSchedule,)),
    ],
)
def test_each_field_is_in_the_table(kind, more):
    assert fields_of(kind, *more) <= listed(f"{kind.__module__}.{kind.__name__}")


def test_each_setting_of_beat_is_in_the_table():
    assert {f"beat_{name}" for name in NAMESPACES["beat"]} <= listed("settings")


def test_no_class_of_schedules_is_unknown():
    found = {one for one in vars(schedules).values() if inspect.isclass(one)}
    kinds = {one for one in found if issubclass(one, BaseSchedule)}
    assert kinds == {BaseSchedule, schedule, crontab, solar}


def test_a_run_has_each_header_that_beat_sends(delayq, report, redis):
    app = delayq.app
    said = {"task": "report", "args": (7,), "schedule": timedelta(hours=1)}
    app.conf.beat_schedule = {"a": {**said, "options": {"headers": {"team": "a"}}}}
    object.__setattr__(delayq.services.settings, "beat", True)
    Declared(delayq.services, runs_tasks=True).name()
    write(delayq)
    [task] = delayq.select(tag="every:a")
    of_rule = json.loads(delayq.services.entries.find(task.id).message)["headers"]
    scheduler = beat.Scheduler(app)  # it writes its header into the options of the setting
    scheduler.apply_async(scheduler.schedule["a"])
    of_beat = json.loads(redis.lpop("celery"))["headers"]
    own = {"id", "root_id", "eta", "origin", "expires"}
    assert {name: of_rule.get(name) for name in of_beat.keys() - own} == {
        name: value for name, value in of_beat.items() if name not in own
    }
