"""Makes rules of the entries of `beat_schedule`, with the setting `delayq_beat`.

a worker --each entry--> a row with the source `beat` --declared.py--> a rule
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from celery import Celery
from celery.beat import BeatLazyFunc, ScheduleEntry
from celery.canvas import Signature
from celery.schedules import crontab

from ...core import clock
from ...core.errors import InvalidOption, StoreError
from ...core.services import Services
from ...core.text import logger_of
from .every import row_of
from .rule import Taken

BEAT = "beat"  # the source of these rules
HEADER = "celery_beat_task"  # of the messages of beat, since Celery 5.6
CLEANUP = "celery.backend_cleanup"

# They send the entries of `beat_schedule` as they are.
_SCHEDULERS = {
    "celery.beat.PersistentScheduler",
    "celery.beat.Scheduler",
    "django",
    "django_celery_beat.schedulers.DatabaseScheduler",
    "redbeat.RedBeatScheduler",
    "redbeat.schedulers.RedBeatScheduler",
}
_OWN_SCHEDULER = (
    "delayq_beat: beat_schedule stays with beat, as beat_scheduler is %s: a class of your own may "
    "change or leave out entries when beat starts; move that into beat_schedule, and use Celery's "
    "scheduler"
)
_DEADLINE = (
    "delayq_beat: rules do not use beat_cron_starting_deadline: of the slots that were missed the "
    "latest runs, however late"
)
_SAID = set[str]()

logger = logger_of(__name__)


def sayings(services: Services) -> Iterator[tuple[str, dict[str, str], Taken]]:
    """Yield the name, the row, and what it takes over, of each entry that a rule can have."""
    app = services.app
    for name, given in entries_of(app).items():
        try:
            now = clock.utc_now()
            entry = ScheduleEntry(**{"last_run_at": now, **given, "name": name, "app": app})
            row = row_of(services, name, signature_of(app, entry), entry.schedule, source=BEAT)
            taken = taken_of(entry) if "last_run_at" in given else Taken()
        except StoreError:
            raise
        except Exception as error:  # a user's own schedule may raise anything
            why = str(error) or type(error).__name__
            logger.error("beat_schedule: %s stays with beat: %s", name, why)
        else:
            yield name, row, taken


def entries_of(app: Celery) -> dict[str, Mapping[str, Any]]:
    """Return the entries that beat would have, its own for the result backend included.

    Of a scheduler that is not known to leave them as they are, there are none.
    """
    if scheduler := _own_scheduler(app.conf.beat_scheduler):
        _say_once(logging.ERROR, _OWN_SCHEDULER, scheduler)
        return {}
    if app.conf.beat_cron_starting_deadline is not None:
        _say_once(logging.WARNING, _DEADLINE)
    schedule = dict(app.conf.beat_schedule)
    if app.conf.result_expires and not app.backend.supports_autoexpire:
        options = {"expires": 12 * 3600}
        cleanup = {"task": CLEANUP, "schedule": crontab("0", "4", "*"), "options": options}
        schedule.setdefault(CLEANUP, cleanup)
    return schedule


def _own_scheduler(given: Any) -> str:
    """Return the name of a scheduler that may change the entries; empty: it is a known one."""
    is_text = isinstance(given, str)
    name = given if is_text else f"{given.__module__}.{given.__qualname__}"
    return "" if name.replace(":", ".") in _SCHEDULERS else name


def _say_once(level: int, text: str, *values: str) -> None:
    if text not in _SAID:
        logger.log(level, text, *values)
        _SAID.add(text)


def signature_of(app: Celery, entry: Any) -> Signature[Any]:
    """Return the signature of an entry of beat, with the header that beat sends.

    Raises:
        InvalidOption: beat would compute an argument when it sends it.
    """
    given = (*(entry.args or ()), *(entry.kwargs or {}).values())
    if any(isinstance(value, BeatLazyFunc) for value in given):
        raise InvalidOption("args", "BeatLazyFunc", "values; let the task compute them")
    options = with_header(entry.options)
    made: Signature[Any] = app.signature(
        entry.task, args=entry.args or (), kwargs=entry.kwargs, options=options
    )
    return made


def with_header(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the header by which others know a task of beat."""
    return {**options, "headers": {**(options.get("headers") or {}), HEADER: True}}


def taken_of(entry: ScheduleEntry) -> Taken:
    """Return what an entry says of its last run."""
    return Taken(entry.schedule.maybe_make_aware(entry.last_run_at))
