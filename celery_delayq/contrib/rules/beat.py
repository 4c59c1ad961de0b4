"""Makes rules of the entries of `beat_schedule`, with the setting `delayq_beat`.

a worker --each entry--> a rule with the source `beat` --nobody named it for ten minutes--> removed

A schedule may change while old processes still say what it was. So each process names the rules
that it has, each two minutes, and a rule goes once no living process has named it for ten.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from hashlib import sha1
from typing import Any

from celery import Celery
from celery.beat import BeatLazyFunc, ScheduleEntry
from celery.canvas import Signature
from celery.schedules import crontab

from ...core import clock
from ...core.errors import InvalidOption, StoreError
from ...core.logs import logger_of
from ...core.services import Services
from .. import rule_store as store
from .every import app_of, every
from .face import change
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


class Source:
    """The entries of an app's `beat_schedule`, as this process has them."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._digests: dict[str, str] = {}  # of the entries that are rules
        self._is_said = self._has_named = False

    def name(self) -> None:
        """Name the rules that this process has, after it has set them; remove those of nobody.

        Raises:
            StoreError: the store cannot be reached.
        """
        if self._services.settings.beat and not self._is_said:
            for name, entry in entries_of(self._services.app).items():
                self._set(name, entry)
            self._is_said = True
        answer = self._asked()
        if self._has_named and not answer.knows:
            logger.warning("the store is new: it has none of the rules that were set before")
            self._is_said = self._has_named = False
            self.name()
            return
        self._has_named = True
        if answer.sweeps:
            self._sweep(answer.found)

    def _sweep(self, found: Sequence[bytes]) -> None:
        """Remove the rules of this app that no living process has named."""
        living: dict[str, set[str]] = {}
        for names in found:
            for name, digest in json.loads(names).items():
                living.setdefault(name, set()).add(digest)
        for rule in [*store.each(self._services.entries)]:
            is_ours = rule.source == BEAT and rule.row.get("app") == app_of(self._services)
            if is_ours and rule.name not in living:
                logger.info(
                    "rule %s is removed: no worker has it in beat_schedule any more", rule.name
                )
                change(self._services, rule.name, "remove", settles=False)
        self._say_again(living)

    def _asked(self) -> Any:
        names = json.dumps(self._digests, sort_keys=True) if self._digests else ""
        digest = sha1(names.encode(), usedforsecurity=False).hexdigest() if names else ""
        [shard, *_] = self._services.entries.unasked_shards
        return shard.scripts.call("rules_named", digest=digest, names=names)

    def _say_again(self, living: Mapping[str, set[str]]) -> None:
        """Set anew what an old process said last that is no longer alive."""
        entries = entries_of(self._services.app)
        for name in [*self._digests]:
            found = store.find(self._services.entries, name)
            is_ours = found is not None and found.source == BEAT and name in entries
            if is_ours and found and found.digest not in living.get(name, ()):
                self._set(name, entries[name])

    def _set(self, name: str, given: Mapping[str, Any]) -> None:
        try:
            found = store.find(self._services.entries, name)
            if found is not None and found.source != BEAT and not found.is_removed:
                logger.warning("beat_schedule: %s is left out, as another rule has its name", name)
                return
            app, now = self._services.app, clock.utc_now()
            entry = ScheduleEntry(**{"last_run_at": now, **given, "name": name, "app": app})
            signature = signature_of(app, entry)
            # This is a worker's main process: its pool clears up.
            rule = every(
                self._services,
                name,
                signature,
                entry.schedule,
                source=BEAT,
                settles=False,
                taken=taken_of(entry) if "last_run_at" in given else Taken(),
            )
        except StoreError:
            raise
        except Exception as error:  # a user's own schedule may raise anything
            why = str(error) or type(error).__name__
            logger.error("beat_schedule: %s stays with beat: %s", name, why)
        else:
            self._digests[name] = rule.digest


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
