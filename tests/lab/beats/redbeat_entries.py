"""celery-redbeat stores an entry of each kind; then ours imports them.

python -m tests.lab.beats.redbeat_entries URL
"""

import inspect
import json
import re
import sys
from datetime import datetime, timezone
from pathlib import Path

from celery import Celery
from celery.schedules import crontab, schedule
from redbeat import RedBeatSchedulerEntry as Entry
from redbeat import schedulers
from redbeat.schedulers import get_redis
from redbeat.schedules import rrule

from celery_delayq import DelayQ
from celery_delayq.contrib.rules import beside_scanner
from tests.lab.beats.said import imported, say, times

PREFIX = "beats:"
YEAR = datetime(2100, 1, 1, tzinfo=timezone.utc)


def save(app):
    """Store the entries."""
    daily = crontab(hour=9, minute=0)
    for name, when, options in (
        ("daily", daily, {"args": [1], "kwargs": {"big": True}}),
        ("fields", crontab("*/15", "8-18", "mon-fri", "1,15"), {}),
        ("poll", schedule(90.5), {"options": {"queue": "mail", "priority": 3, "expires": 60}}),
        ("relative", schedule(3600, relative=True), {}),
        ("dated", daily, {"kwargs": {"since": YEAR}}),
        ("off", daily, {"enabled": False}),
        ("rule", rrule("MONTHLY", dtstart=YEAR, bymonthday=-1), {}),
        ("fast", schedule(0.5), {}),
        ("ends", daily, {"options": {"expires": YEAR}}),
        ("later", daily, {"options": {"countdown": 5}}),
        ("x" * 201, daily, {}),
        ("fixed", daily, {}),
    ):
        Entry(name, "report", when, app=app, **options).save()


def fields(app, kept):
    """What an entry has, as its class takes it and as Redis has it; and the settings."""
    parameters = inspect.signature(Entry).parameters.values()
    found = {one.name for one in parameters if one.kind is not one.VAR_KEYWORD}
    next(Entry.from_key(f"{PREFIX}daily", app))  # it ran
    for field in ("definition", "meta"):
        found |= {*json.loads(kept.hget(f"{PREFIX}daily", field))}
    text = Path(schedulers.__file__).read_text("utf-8")
    settings = {*re.findall(r"(?:either_or|is_key_in_conf)\(\s*'(\w+)'", text)}
    return {"redbeat.RedBeatSchedulerEntry": [*found], "redbeat's settings": [*settings]}


def main(url):
    app = Celery("proj", broker=url)
    app.conf.update(
        timezone="Europe/Berlin",
        redbeat_redis_url=url,
        redbeat_key_prefix=PREFIX,
        beat_schedule={"fixed": {"task": "report", "schedule": 60}},
    )
    app.delayq = DelayQ(app)
    app.app = app
    save(app)
    kept = get_redis(app)
    definitions = {
        key.removeprefix(PREFIX): kept.hget(key, "definition")
        for key in kept.zrange(f"{PREFIX}:schedule", 0, -1)
    }
    tried = imported(app, "redbeat", "--dry-run")
    rules = len(app.delayq.rules())
    done = imported(app, "redbeat")
    beside_scanner(app).write()
    again = imported(app, "redbeat")
    say(
        {
            "definitions": definitions,
            "tried": tried,
            "rules after that": rules,
            "done": done,
            "again": again,
            "fields": fields(app, kept),
            "times": {
                name: times(app.delayq.rule(name), Entry.from_key(f"{PREFIX}{name}", app).schedule)
                for name in ("daily", "fields")
            },
            "rules": {rule.name: [rule.tz, rule.is_paused] for rule in app.delayq.rules()},
            "runs": {
                task.tags[0]: [task.args, task.kwargs, task.queue] for task in app.delayq.tasks()
            },
        }
    )


if __name__ == "__main__":
    main(sys.argv[1])
