"""Makes rules of the entries of `beat_schedule`, with the setting `delayq_beat`.

a worker --each entry--> a rule with the source `beat` --nobody named it for ten minutes--> removed

A schedule may change while old processes still say what it was. So each process names the rules
that it has, each two minutes, and a rule goes once no living process has named it for ten.
"""

from __future__ import annotations

import json
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

BEAT = "beat"  # the source of these rules
_CLEANUP = "celery.backend_cleanup"

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
                self._services, name, signature, entry.schedule, source=BEAT, settles=False
            )
        except StoreError:
            raise
        except Exception as error:  # a user's own schedule may raise anything
            why = str(error) or type(error).__name__
            logger.error("beat_schedule: %s stays with beat: %s", name, why)
        else:
            self._digests[name] = rule.digest


def entries_of(app: Celery) -> dict[str, Mapping[str, Any]]:
    """Return the entries that beat would have, its own for the result backend included."""
    schedule = dict(app.conf.beat_schedule)
    if app.conf.result_expires and not app.backend.supports_autoexpire:
        options = {"expires": 12 * 3600}
        cleanup = {"task": _CLEANUP, "schedule": crontab("0", "4", "*"), "options": options}
        schedule.setdefault(_CLEANUP, cleanup)
    return schedule


def signature_of(app: Celery, entry: Any) -> Signature[Any]:
    """Return the signature of an entry of beat, of whatever scheduler.

    Raises:
        InvalidOption: beat would compute an argument when it sends it.
    """
    given = (*(entry.args or ()), *(entry.kwargs or {}).values())
    if any(isinstance(value, BeatLazyFunc) for value in given):
        raise InvalidOption("args", "BeatLazyFunc", "values; let the task compute them")
    made: Signature[Any] = app.signature(
        entry.task, args=entry.args or (), kwargs=entry.kwargs, options=entry.options
    )
    return made
