"""One app's settings, broker and store, each made when it is first needed.

    app.conf ---> settings      anew where one is changed
    broker URL -> broker ---+--> endpoint --> connection --> scripts --> entries
    delayq_url -------------+                              one of each to a shard

This is what is handed down, in place of the app's ``DelayQ``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timezone, tzinfo
from functools import cached_property
from typing import Any, Protocol

from celery import Celery
from celery.backends.base import DisabledBackend
from celery.utils import time

from .errors import NoDelayQ, StoreError, SwitchedOff
from .hooks import Hooks
from .libraries import Feature, works
from .logs import logger_of
from .message.broker import Broker, store_endpoint
from .revoked import mark_revoked
from .servers.connection import Connection, PooledConnection
from .servers.endpoint import Server
from .settings import SETTINGS, Settings, written
from .store.copies import Copies
from .store.entries import Entries
from .store.keys import Keys, hash_tag, slot_of
from .store.member import Membership
from .store.scanner_steps import ScannerSteps, new_name
from .store.scripts import Scripts
from .store.values import Cancelled
from .store.wakeup import Wakeup

logger = logger_of(__name__)

GONE_AFTER = 3  # safety intervals without a heartbeat; then a scanner does not count any more
# Seconds in which the store's Redis has to answer each step of connecting. Where packets vanish, a
# scanner notices that they arrive again so much later at most, after its pause.
REACH = 2.0
_KEYS = [setting.key for setting in SETTINGS]

ScriptsOf = Callable[[Connection, Keys, Hooks], Scripts]


class Services:
    """What the rooms above need to know of one app.

    Args:
        app: The Celery app. Its configuration is read when something is first asked for.
        hooks: Who is told of what happens to tasks.
    """

    def __init__(self, app: Celery, hooks: Hooks | None = None) -> None:
        self.app = app
        self.hooks = hooks or Hooks()
        self._made: Configured | None = None
        self._scripts_of: ScriptsOf = Scripts
        self.is_off = False  # whether the app's configuration has switched it off

    @property
    def settings(self) -> Settings:
        """The checked settings, as they are now.

        Raises:
            InvalidSetting: one is out of its range, or there is none of that name.
        """
        return self.configured.settings

    @cached_property
    def broker(self) -> Broker:
        """What the app's broker is; nothing is connected."""
        return Broker.of(self.app.connection_for_write, self.app.conf.broker_write_url)

    @property
    def has_backend(self) -> bool:
        """Whether the app keeps results, and ``REVOKED`` can be stored."""
        is_kept = not isinstance(self.app.backend, DisabledBackend)
        return is_kept and works(Feature.REVOKED_RESULTS)

    @property
    def endpoint(self) -> Server:
        """Where the store is.

        Raises:
            InvalidSetting: there is no Redis to keep tasks in.
        """
        return self.configured.endpoint

    @property
    def named_store(self) -> tuple[str, str]:
        """The store as the log has it: its URL without what is secret, and that URL's setting."""
        key = "broker_url" if self.settings.url is None else "delayq_url"
        return f"store {self.endpoint.url}", written(self.app.conf, key)

    @property
    def named_broker(self) -> tuple[str, str]:
        """The broker in the same way."""
        return f"broker {self.broker.url}", written(self.app.conf, "broker_url")

    @property
    def store_is_broker(self) -> bool:
        """Whether a script can push a message straight into the broker's lists."""
        return self.configured.store_is_broker

    @property
    def timezone(self) -> tzinfo:
        """The zone of naive times."""
        # Not the app's `timezone`, which is what it was when a message first asked for it.
        conf = self.app.conf
        if conf.timezone:
            zone: tzinfo = time.timezone.get_timezone(conf.timezone)
            return zone
        return timezone.utc if conf.enable_utc else time.timezone.local

    def connect(self) -> Connection:
        """A connection to the store's Redis that nobody else uses; opened when first needed."""
        # The search for a group's master has steps and an end of its own.
        reach = math.inf if self.endpoint.may_move else REACH
        return PooledConnection(self.endpoint, reach=reach)

    @property
    def scripts(self) -> Sequence[Scripts]:
        """The scripts on each shard's keys, over the connection that callers share."""
        return self.configured.scripts

    @property
    def membership(self) -> Membership:
        """What the processes that share the store have to agree on."""
        return self.configured.membership

    @property
    def entries(self) -> Entries:
        """What callers do with the store."""
        return self.configured.entries

    @property
    def copies(self) -> Copies:
        """What a worker asks when it is given a relayed task."""
        return self.configured.copies

    def engines(self, *, owes: bool = False) -> list[ScannerSteps]:
        """What a scanner does with each shard, over a connection of its own.

        With *owes*, it notes that ``REVOKED`` is to be stored for what is too late.
        """
        connection, name, hooks = self.connect(), new_name(), self.hooks
        each = [self._scripts_of(connection, keys, hooks) for keys in self._keys()]
        return [self.engine(scripts, name, owes=owes) for scripts in each]

    def _keys(self) -> list[Keys]:
        # First where processes meet that differ in the number of shards: one that is refused there
        # leaves nothing in the others.
        keys = [one.keys for one in self.scripts]
        return sorted(keys, key=lambda one: not one.is_meeting_place)

    def engine(
        self, scripts: Scripts, name: str | None = None, *, owes: bool = False
    ) -> ScannerSteps:
        """What a scanner of that name does with these keys."""
        settings = self.settings
        return ScannerSteps(
            scripts,
            self.membership,
            batch_size=settings.batch_size,
            lease=settings.lease,
            alive=settings.safety_interval * GONE_AFTER,
            name=name,
            catch_up=settings.catch_up,
            owes=owes,
        )

    def wakeup(self, scanner: str) -> Wakeup:
        """What a scanner of that name waits on."""
        return Wakeup(self.connect(), self._keys(), scanner)

    def will_not_run(
        self,
        cancelled: Sequence[Cancelled],
        *,
        owed: bool,
        late: bool = False,
        gave_way: bool = False,
    ) -> None:
        """Let it be known of tasks that they will not run.

        Args:
            cancelled: What the step answered that did it; at least one.
            owed: Whether that step has noted that ``REVOKED`` is to be stored.
            late: Whether a scanner may have done that since; see :func:`mark_revoked`.
            gave_way: Whether they were not scheduled, as others were kept.
        """
        for one in cancelled:
            if owed and one.message and mark_revoked(self.app, one, late=late):
                # It will not run, whatever comes now; what is not settled, a scanner does again.
                with suppress(StoreError):
                    self.entries.mark_stored(one)
        if gave_way:
            self.hooks.gave_way(list(cancelled))
        elif any(hears() for hears in self.hooks.hears_cancelled):
            self.hooks.cancelled(list(cancelled))

    def import_tasks(self) -> None:
        """Know tasks as a worker does: import the modules that it imports, as far as that works."""
        try:
            self.app.loader.import_default_modules()
        except Exception as error:
            logger.warning("not all tasks of this app are known: %s", repr(error))

    def check(self) -> None:
        """Read the whole configuration.

        Raises:
            InvalidSetting: a setting is out of its range, or there is no Redis to keep tasks in.
        """
        _ = self.endpoint

    def close(self) -> None:
        """Close the idle connections that callers share; the next call opens new ones."""
        if self._made is not None:
            self._made.close()

    def start_anew(self, scripts_of: ScriptsOf = Scripts) -> None:
        """Forget broker and store; they are made of the configuration as it is now.

        Args:
            scripts_of: Binds the scripts to a Redis and its keys: a test's have its own clock.
        """
        self.close()
        self._made = None
        vars(self).pop("broker", None)
        self._scripts_of = scripts_of

    @property
    def configured(self) -> Configured:
        """What was made of the settings; anew where one of them has been changed since."""
        made = self._made
        # Asked at each call, so it looks where a change is written, and reads no setting.
        if made is None or self.app.conf is not made.conf or made.changed() != made.changes:
            fresh = Configured(self.app, lambda: self.broker, self.hooks, self._scripts_of)
            if not fresh.settings.enabled:
                raise SwitchedOff(self.app.main)
            # Nothing is kept, whichever setting it was: which of them is bound in what would have
            # to be written down here, and one that was forgotten would never count.
            if made is not None:
                made.close()
            self._made = made = fresh
        return made


class HasServices(Protocol):
    """What has the services of an app: its ``DelayQ``, whose methods the operations are."""

    @property
    def services(self) -> Services: ...


class Configured:
    """What is made of the settings, and stays as long as they do.

    Attributes:
        settings: The settings, checked.
        conf: The configuration that they are of.
        changes: What was set of them when this was made.
    """

    def __init__(
        self, app: Celery, broker: Callable[[], Broker], hooks: Hooks, scripts_of: ScriptsOf
    ) -> None:
        # What is read first makes a configuration that was pending a real one, another object.
        app.conf.get(SETTINGS[0].key)
        self.conf = app.conf
        self.settings = Settings.load(self.conf)
        self._app = app
        self._broker = broker
        self._hooks = hooks
        self._scripts_of = scripts_of
        self.changes = self.changed()

    def changed(self) -> list[Any]:
        """What was set of this package's settings, as it is now."""
        return [*map(self.conf.changes.get, _KEYS)] if works(Feature.LATER_SETTINGS) else []

    @cached_property
    def endpoint(self) -> Server:
        settings = self.settings
        names = written(self.conf, "delayq_url"), written(self.conf, "delayq_transport_options")
        tags = [hash_tag(settings.prefix, one, settings.shards) for one in range(settings.shards)]
        slots = [slot_of(tag) for tag in tags]
        options = settings.transport_options
        return store_endpoint(settings.url, options, self._broker(), names, slots)

    @cached_property
    def store_is_broker(self) -> bool:
        broker = self._broker()
        return (
            broker.endpoint is not None
            and not broker.failover
            and broker.endpoint.same_database(self.endpoint)
        )

    @cached_property
    def scripts(self) -> list[Scripts]:
        connection = PooledConnection(self.endpoint, self.settings.timeout)
        prefix, shards = self.settings.prefix, self.settings.shards
        each = [Keys(prefix, shard, shards) for shard in range(shards)]
        return [self._scripts_of(connection, keys, self._hooks) for keys in each]

    @cached_property
    def membership(self) -> Membership:
        broker, settings = self._broker(), self.settings
        return Membership(
            settings.timeout,
            broker.kind,
            broker.hosts,
            settings.shards,
            settings.history,
            settings.history_repeats,
            self._app_name,
            self.endpoint.url,
            direct=self.store_is_broker,
        )

    @property
    def _app_name(self) -> str:
        # An app without a name, or of a module that was run, may be any.
        name = self._app.main or ""
        return "" if name == "__main__" else name

    @cached_property
    def entries(self) -> Entries:
        return Entries(self.scripts, self.membership)

    @cached_property
    def copies(self) -> Copies:
        broker = self._broker()
        return Copies(self.scripts, max(self.settings.lease, broker.visibility_timeout))

    def close(self) -> None:
        if "scripts" in vars(self):
            for one in self.scripts:
                one.connection.close()


# The app's ``DelayQ`` hangs on the app itself, where the modules that Celery calls find it.
_ATTRIBUTE = "delayq"


def attach(app: Any, delayq: Any) -> None:
    """Let *app* have this ``DelayQ``."""
    setattr(app, _ATTRIBUTE, delayq)


def made_for(app: Any) -> HasServices | None:
    """The app's ``DelayQ``, if one was made and is not switched off."""
    delayq: HasServices | None = None if find(app) is None else getattr(app, _ATTRIBUTE)
    return delayq


def find(app: Any) -> Services | None:
    """The services of the app's ``DelayQ``, if one was made and is not switched off."""
    delayq: HasServices | None = getattr(app, _ATTRIBUTE, None)
    return None if delayq is None or delayq.services.is_off else delayq.services


def services_of(app: Any) -> Services:
    """The services of the app's ``DelayQ``.

    Raises:
        NoDelayQ: none was made.
        SwitchedOff: the app's configuration has switched it off.
    """
    delayq = getattr(app, _ATTRIBUTE, None)
    if delayq is None:
        raise NoDelayQ(app.main)
    services: Services = delayq.services
    if not app.configured:
        app.conf.get("delayq_enabled")  # which reads the configuration
    if services.is_off:
        raise SwitchedOff(app.main)
    return services
