"""Entries that the real schedulers stored; ``./tests/run beats`` compares them with new ones."""

import json
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

REDBEAT, DJANGO = "celery-redbeat-2.4.2", "django-celery-beat-2.9.0"
_KINDS = ("crontab", "interval", "solar", "clocked")


def frozen(name):
    """The entries that one of them stored."""
    path = Path(__file__).with_name(f"{name}.json")
    return json.loads(path.read_text("utf-8"))


def rows():
    """The rows of django-celery-beat, without Django."""
    for found in frozen(DJANGO):
        kinds = {kind: SimpleNamespace(**found[kind]) if found[kind] else None for kind in _KINDS}
        begin = found["start_time"]
        found["start_time"] = begin and datetime.fromisoformat(begin)
        times = {"last_run_at": None, "date_changed": None}
        yield SimpleNamespace(**{**found, **kinds, **times})
