"""django-celery-beat stores an entry of each kind; then ours imports them.

python -m tests.lab.beats.django_entries URL
"""

import re
import sys
from datetime import datetime, timezone
from pathlib import Path

import django
from celery import Celery
from django.conf import settings
from django.core.management import call_command
from django.forms.models import model_to_dict

from celery_delayq import DelayQ
from celery_delayq.contrib.rules import beside_scanner
from tests.lab.beats.said import imported, say, times

YEAR = datetime(2100, 1, 1, tzinfo=timezone.utc)
PAST = datetime(2000, 1, 1, tzinfo=timezone.utc)
KINDS = ("crontab", "interval", "solar", "clocked")


def set_up():
    """A project whose database has no tables yet."""
    settings.configure(
        INSTALLED_APPS=["django_celery_beat"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        USE_TZ=True,
    )
    django.setup()


def save():
    """Store the entries; return them."""
    from django_celery_beat.models import (
        ClockedSchedule,
        CrontabSchedule,
        IntervalSchedule,
        PeriodicTask,
        SolarSchedule,
    )

    daily = {"crontab": CrontabSchedule.objects.create(hour="9", minute="0", timezone="Asia/Tokyo")}
    hourly = {"interval": IntervalSchedule.objects.create(every=1, period="hours")}
    quick = {"interval": IntervalSchedule.objects.create(every=5, period="microseconds")}
    sun = {"solar": SolarSchedule.objects.create(event="sunset", latitude=52, longitude=13)}
    once = {"clocked": ClockedSchedule.objects.create(clocked_time=YEAR)}
    fields = {
        "crontab": CrontabSchedule.objects.create(
            minute="*/15", hour="8-18", day_of_month="1,15", day_of_week="mon-fri"
        )
    }
    routed = {"exchange": "celery", "routing_key": "celery", "headers": '{"team": "a"}'}
    for name, options in {
        "daily": {**daily, "args": "[1]", "kwargs": '{"big": true}'},
        "fields": fields,
        "hourly": {**hourly, "queue": "mail", "priority": 3, "expire_seconds": 60},
        "routed": {**hourly, **routed},
        "off": {**daily, "enabled": False},
        "begun": {**daily, "start_time": PAST},
        "begins": {**daily, "start_time": YEAR},
        "ends": {**daily, "expires": YEAR},
        "once": {**daily, "one_off": True},
        "clocked": {**once, "one_off": True},
        "sun": sun,
        "quick": quick,
        "no json": {**daily, "args": "[1"},
        "no list": {**daily, "args": '{"a": 1}'},
        "no headers": {**daily, "headers": "[1]"},
        "no task": {**daily, "task": ""},
        "ä" * 101: daily,
    }.items():
        PeriodicTask.objects.create(**{"name": name, "task": "report", **options})
    return PeriodicTask.objects.order_by("name")


def frozen(row):
    """A row as JSON has it; its schedule by its fields."""
    found = {**model_to_dict(row), "id": None}
    for kind in KINDS:
        one = getattr(row, kind)
        found[kind] = {**model_to_dict(one), "id": None} if one else None
    return found


def fields():
    """The fields of each model, and the settings."""
    from django_celery_beat import models

    kinds = (
        models.PeriodicTask,
        models.CrontabSchedule,
        models.IntervalSchedule,
        models.SolarSchedule,
        models.ClockedSchedule,
    )
    # Of a schedule, not its number, nor the entries that have it.
    found = {
        kind.__name__: [field.name for field in kind._meta.fields if field.name != "id"]
        for kind in kinds
    }
    found["PeriodicTask"].append("id")
    texts = [path.read_text("utf-8") for path in Path(models.__file__).parent.glob("*.py")]
    settings = {*re.findall(r"settings, '(\w+)'", "".join(texts))}
    # Django's own, and the zone and scheduler of Celery.
    own = {"USE_TZ", "TIME_ZONE", "CELERY_TIMEZONE", "CELERY_BEAT_SCHEDULER"}
    return {**found, "django-celery-beat's settings": [*settings - own]}


def main(url):
    set_up()
    app = Celery("proj", broker=url)
    app.conf.timezone = "Europe/Berlin"
    app.delayq = DelayQ(app)
    app.app = app
    try:
        imported(app, "django-celery-beat")
        without = ""
    except AssertionError as error:
        without = str(error)
    call_command("migrate", verbosity=0)
    entries = save()
    tried = imported(app, "django-celery-beat", "--dry-run")
    rules = len(app.delayq.rules())
    done = imported(app, "django-celery-beat")
    beside_scanner(app).write()
    again = imported(app, "django-celery-beat")
    say(
        {
            "rows": [frozen(row) for row in entries],
            "without tables": without,
            "tried": tried,
            "rules after that": rules,
            "done": done,
            "again": again,
            "fields": fields(),
            "times": {
                row.name: times(app.delayq.rule(row.name), row.schedule)
                for row in entries
                if row.name in ("daily", "fields")
            },
            "rules": {rule.name: [rule.tz, rule.is_paused] for rule in app.delayq.rules()},
            "runs": {
                task.tags[0]: [task.args, task.kwargs, task.queue] for task in app.delayq.tasks()
            },
        }
    )


if __name__ == "__main__":
    main(sys.argv[1])
