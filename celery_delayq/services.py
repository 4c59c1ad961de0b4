"""One app's settings, broker and store, each made when it is first needed.

    app.conf ---> settings      made anew if one changes
    broker URL -> broker ---+--> endpoint --> connection --> scripts --> entries
    delayq_url -------------+                              one of each per shard

The other parts get this object instead of the app's ``DelayQ``.
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

GONE_AFTER = 3  # safety intervals without a heartbeat, after which a scanner counts as gone
# Seconds that the store's Redis has for each step of connecting. After a network cut, a scanner
# notices at most this much later, after its pause, that packets arrive again.
REACH = 2.0
_KEYS = [setting.key for setting in SETTINGS]

ScriptsOf = Callable[[Connection, Keys, Hooks], Scripts]


class Services:
    """The settings, the broker and the store of one app, for all other parts.

    Args:
        app: The Celery app. Its configuration is read on first use.
        hooks: Called when something happens to a task.
    """

    def __init__(self, app: Celery, hooks: Hooks | None = None) -> None:
        self.app = app
        self.hooks = hooks or Hooks()
        self._made: Configured | None = None
        self._scripts_of: ScriptsOf = Scripts
        self.is_off = False  # whether the app's configuration switches it off

    @property
    def settings(self) -> Settings:
        """The checked settings, as they are now.

        Raises:
            InvalidSetting: a setting is out of its range or unknown.
        """
        return self.configured.settings

    @cached_property
    def broker(self) -> Broker:
        """The description of the app's broker; reading it opens no connection."""
        return Broker.of(self.app.connection_for_write, self.app.conf.broker_write_url)

    @property
    def has_backend(self) -> bool:
        """Whether the app has a result backend, which can store ``REVOKED``."""
        is_kept = not isinstance(self.app.backend, DisabledBackend)
        return is_kept and works(Feature.REVOKED_RESULTS)

    @property
    def endpoint(self) -> Server:
        """Where the store is.

        Raises:
            InvalidSetting: no Redis is configured to keep tasks in.
        """
        return self.configured.endpoint

    @property
    def named_store(self) -> tuple[str, str]:
        """The store as logs name it: its URL without secrets, and the setting that has the URL."""
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
        """The time zone of naive times."""
        # Not the app's `timezone`, which keeps the value that it had when first read.
        conf = self.app.conf
        if conf.timezone:
            zone: tzinfo = time.timezone.get_timezone(conf.timezone)
            return zone
        return timezone.utc if conf.enable_utc else time.timezone.local

    def connect(self) -> Connection:
        """Return an unshared connection to the store's Redis; it is opened on first use."""
        # The search for a master limits its own steps and its total time.
        reach = math.inf if self.endpoint.may_move else REACH
        return PooledConnection(self.endpoint, reach=reach)

    @property
    def scripts(self) -> Sequence[Scripts]:
        """The scripts for each shard, over the connection that callers share."""
        return self.configured.scripts

    @property
    def membership(self) -> Membership:
        """The check that all processes that share the store agree on its layout."""
        return self.configured.membership

    @property
    def entries(self) -> Entries:
        """The operations that callers use."""
        return self.configured.entries

    @property
    def copies(self) -> Copies:
        """The check for duplicates, which a worker makes when it receives a relayed task."""
        return self.configured.copies

    def engines(self, *, owes: bool = False) -> list[ScannerSteps]:
        """Return each shard's steps for a scanner, over a connection of its own.

        With *owes*, the scanner notes that ``REVOKED`` must be stored for a task that is too late.
        """
        connection, name, hooks = self.connect(), new_name(), self.hooks
        each = [self._scripts_of(connection, keys, hooks) for keys in self._keys()]
        return [self.engine(scripts, name, owes=owes) for scripts in each]

    def _keys(self) -> list[Keys]:
        # First the shard that all numbers of shards have: a process with another number is refused
        # there, and leaves nothing in the others.
        keys = [one.keys for one in self.scripts]
        return sorted(keys, key=lambda one: not one.is_meeting_place)

    def engine(
        self, scripts: Scripts, name: str | None = None, *, owes: bool = False
    ) -> ScannerSteps:
        """Return one shard's steps for the scanner of that name."""
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
        """Return the wake-up on which the scanner of that name blocks."""
        return Wakeup(self.connect(), self._keys(), scanner)

    def will_not_run(
        self,
        cancelled: Sequence[Cancelled],
        *,
        owed: bool,
        late: bool = False,
        gave_way: bool = False,
    ) -> None:
        """Call the hooks and store ``REVOKED`` for tasks that will not run.

        Args:
            cancelled: The answers of the step that cancelled them; at least one.
            owed: Whether that step noted that ``REVOKED`` must be stored.
            late: Whether a scanner may have stored it since; see :func:`mark_revoked`.
            gave_way: Whether they were not scheduled because existing tasks were kept.
        """
        for one in cancelled:
            if owed and one.message and mark_revoked(self.app, one, late=late):
                # The task will not run in any case. A scanner repeats what is not settled here.
                with suppress(StoreError):
                    self.entries.mark_stored(one)
        if gave_way:
            self.hooks.gave_way(list(cancelled))
        elif any(hears() for hears in self.hooks.hears_cancelled):
            self.hooks.cancelled(list(cancelled))

    def import_tasks(self) -> None:
        """Import the modules with tasks that a worker imports, as far as that works."""
        try:
            self.app.loader.import_default_modules()
        except Exception as error:
            logger.warning("not all tasks of this app are known: %s", repr(error))

    def check(self) -> None:
        """Read the whole configuration.

        Raises:
            InvalidSetting: a setting is out of its range, or no Redis is configured to keep tasks
                in.
        """
        _ = self.endpoint

    def close(self) -> None:
        """Close the idle connections that callers share; the next call opens new ones."""
        if self._made is not None:
            self._made.close()

    def start_anew(self, scripts_of: ScriptsOf = Scripts) -> None:
        """Forget broker and store; the next use makes them from the current configuration.

        Args:
            scripts_of: Binds the scripts to a Redis and its keys; a test passes scripts with a
                clock of its own.
        """
        self.close()
        self._made = None
        vars(self).pop("broker", None)
        self._scripts_of = scripts_of

    @property
    def configured(self) -> Configured:
        """The objects made from the settings; made anew if a setting was changed."""
        made = self._made
        # Each call passes here, so this only checks where changes are written, and reads no
        # setting.
        if made is None or self.app.conf is not made.conf or made.changed() != made.changes:
            fresh = Configured(self.app, lambda: self.broker, self.hooks, self._scripts_of)
            if not fresh.settings.enabled:
                raise SwitchedOff(self.app.main)
            # Whichever setting changed, all is made anew: a list of what depends on which setting
            # could miss one, and its change would have no effect.
            if made is not None:
                made.close()
            self._made = made = fresh
        return made


class HasServices(Protocol):
    """An object with the services of an app: its ``DelayQ``, whose methods are the operations."""

    @property
    def services(self) -> Services: ...


class Configured:
    """The objects made from the settings, valid until a setting changes.

    Attributes:
        settings: The checked settings.
        conf: The configuration that has them.
        changes: The values that were set when this was made.
    """

    def __init__(
        self, app: Celery, broker: Callable[[], Broker], hooks: Hooks, scripts_of: ScriptsOf
    ) -> None:
        # The first read replaces a pending configuration by the real one, another object.
        app.conf.get(SETTINGS[0].key)
        self.conf = app.conf
        self.settings = Settings.load(self.conf)
        self._app = app
        self._broker = broker
        self._hooks = hooks
        self._scripts_of = scripts_of
        self.changes = self.changed()

    def changed(self) -> list[Any]:
        """Return the current values of this package's settings."""
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
        # An app without a name, or with the name of a script, may be any app.
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


# The app itself holds its ``DelayQ``, so the modules that Celery calls find it.
_ATTRIBUTE = "delayq"


def attach(app: Any, delayq: Any) -> None:
    """Set the ``DelayQ`` of *app*."""
    setattr(app, _ATTRIBUTE, delayq)


def made_for(app: Any) -> HasServices | None:
    """Return the app's ``DelayQ``, if it has one that is not switched off."""
    delayq: HasServices | None = None if find(app) is None else getattr(app, _ATTRIBUTE)
    return delayq


def find(app: Any) -> Services | None:
    """Return the services of the app's ``DelayQ``, if it has one that is not switched off."""
    delayq: HasServices | None = getattr(app, _ATTRIBUTE, None)
    return None if delayq is None or delayq.services.is_off else delayq.services


def services_of(app: Any) -> Services:
    """The services of the app's ``DelayQ``.

    Raises:
        NoDelayQ: the app has none.
        SwitchedOff: the app's configuration switches it off.
    """
    delayq = getattr(app, _ATTRIBUTE, None)
    if delayq is None:
        raise NoDelayQ(app.main)
    services: Services = delayq.services
    if not app.configured:
        app.conf.get("delayq_enabled")  # this reads the configuration
    if services.is_off:
        raise SwitchedOff(app.main)
    return services
