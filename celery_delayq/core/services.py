"""One app's settings, broker, store and result backend, each made when it is first needed.

    app.conf ---> settings      read again after a change
    broker URL -> broker ---+--> endpoint --> connection --> scripts --> entries
    delayq_url -------------+                              one of each per shard

The lower layers receive this object instead of the app's ``DelayQ``.

A task that was cancelled, that another one replaced, or that gave way to another one is ``REVOKED``
in the result backend, so that no caller waits for it in vain.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timezone, tzinfo
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from celery import Celery, states
from celery.app.task import Context
from celery.backends.base import DisabledBackend
from celery.utils import time

from .clock import local
from .errors import InvalidSetting, NoDelayQ, StoreDiffers, StoreError, SwitchedOff
from .hooks import Hooks
from .leaves import leaf
from .libraries import Feature, works
from .message.body import message_body
from .message.broker import Broker, beside, is_direct, is_tagged, store_endpoint
from .message.headers import LAUNCH
from .servers.connection import Connection
from .servers.endpoint import Server
from .settings import MOST_SHARDS, SETTINGS, Settings, written
from .store.entries import Entries
from .store.keys import Keys
from .store.membership import Membership, Registration
from .store.scripts import Scripts
from .store.values import Cancelled, Outcome
from .text import logger_of

if TYPE_CHECKING:
    from .store.delivery import Copies, ScannerSteps
    from .store.wakeup import Wakeup

logger = logger_of(__name__)

# Seconds that the store's Redis has to answer each step of connecting. After a network failure that
# drops packets, a scanner reconnects at most this long after its pause.
REACH = 2.0
_NO_STORE = (
    "there is no store, so workers deliver no scheduled tasks, and Celery keeps the tasks with an "
    "eta: %s"
)
_SHARDS = (
    "the store has %d shards, so this process uses %d from now on, instead of %d; set "
    "delayq_shards to %d"
)
_KEYS = [setting.key for setting in SETTINGS]
# The app itself holds its ``DelayQ``, so modules that Celery calls can find it.
_ATTRIBUTE = "delayq"

ScriptsOf = Callable[[Connection, Keys, Settings, Hooks], Scripts]


class Services:
    """One app's settings, broker and store, for the layers above.

    It has the attributes of :class:`Configured` as well; an invalid setting raises
    ``InvalidSetting`` there.

    Args:
        app: The Celery app. Its configuration is read on first use.
        hooks: The hooks to call when tasks change.
    """

    settings: Settings
    endpoint: Server
    has_store: bool
    store_is_broker: bool
    scripts: Sequence[Scripts]
    membership: Membership
    entries: Entries
    copies: Copies

    def __init__(self, app: Celery, hooks: Hooks | None = None) -> None:
        self.app = app
        self.hooks = hooks or Hooks()
        self.hooks.add(Hooks(differs=self._meet))
        self._met: int | None = None  # the store's number of shards, if it said one
        self._made: Configured | None = None
        self.scripts_of: ScriptsOf = Scripts
        self.backend_rests_until = 0.0  # by the monotonic clock, after the result backend failed
        self.is_off = False  # whether the app's configuration switches DelayQ off

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if name in Services.__annotations__:
                return getattr(self.configured, name)
            return self.__getattribute__(name)  # raises again

    @cached_property
    def broker(self) -> Broker:
        """The app's broker; does not connect."""
        return Broker.of(self.app.connection_for_write, self.app.conf.broker_write_url)

    @property
    def has_backend(self) -> bool:
        """Whether the app has a result backend, which can store ``REVOKED``."""
        is_kept = not isinstance(self.app.backend, DisabledBackend)
        return is_kept and works(Feature.REVOKED_RESULTS)

    @property
    def named_store(self) -> tuple[str, str]:
        """The store for the log: its URL without secrets, and the setting that holds the URL."""
        key = "broker_url" if self.settings.url is None else "delayq_url"
        return f"store {self.endpoint.url}", written(self.app.conf, key)

    @property
    def named_broker(self) -> tuple[str, str]:
        """The broker for the log, like :attr:`named_store`."""
        return f"broker {self.broker.url}", written(self.app.conf, "broker_url")

    @property
    def timezone(self) -> tzinfo:
        """The time zone of naive times."""
        # Not `app.timezone`: Celery caches it on first use.
        conf = self.app.conf
        if conf.timezone:
            zone: tzinfo = time.timezone.get_timezone(conf.timezone)
            return zone
        return timezone.utc if conf.enable_utc else local()

    def connect(self) -> Connection:
        """Return a private connection to the store's Redis; it opens on first use."""
        if len({id(scripts.connection) for scripts in self.scripts}) > 1:
            # A node that is silent keeps a scanner from the shards on other nodes for as long.
            return Connection(self.endpoint, REACH)
        # Finding a Sentinel group's master has its own steps and time limit.
        reach = math.inf if self.endpoint.may_move else REACH
        return Connection(self.endpoint, reach=reach)

    def steps_by_shard(self) -> list[ScannerSteps]:
        """Return a scanner's steps for each shard, over a new connection to each node."""
        from .store.delivery import ScannerSteps, new_name

        store, connection = self.configured, self.connect()
        name, owes = new_name(), self.has_backend
        apart, meeting_place = store.meeting_place, None
        if apart is not None:
            scripts = store.scripts_over(connection, apart.keys)
            meeting_place = Registration(scripts, store.membership, scanner=True)
        shards = [store.scripts_over(connection, shard.keys) for shard in store.scripts]
        return [
            ScannerSteps(shard, store.membership, name=name, owes=owes, meeting_place=meeting_place)
            for shard in shards
        ]

    def wakeup(self, scanner: str) -> Wakeup:
        """Return the wake-up on which the scanner of that name blocks."""
        from .store.wakeup import Wakeup

        keys = [shard.keys for shard in self.scripts]
        return Wakeup(self.connect(), keys, scanner, self.hooks)

    def will_not_run(
        self,
        cancelled: Sequence[Cancelled],
        *,
        owed: bool,
        late: bool = False,
        gave_way: bool = False,
    ) -> None:
        """Store ``REVOKED`` for tasks that will not run, and call the hooks.

        Args:
            cancelled: The cancelled tasks; at least one.
            owed: Whether the step recorded that ``REVOKED`` must be stored.
            late: Whether a scanner may have stored it meanwhile; see :func:`mark_revoked`.
            gave_way: Whether they were not scheduled because existing tasks were kept.
        """
        for entry in cancelled:
            if owed and entry.message and mark_revoked(self.app, entry, late=late):
                # The task will not run in any case. If this fails, a scanner repeats the work.
                with suppress(StoreError):
                    if self.entries.mark_stored(entry):
                        self.take_back(entry)
        if gave_way:
            self.hooks.gave_way(list(cancelled))
        elif any(hears() for hears in self.hooks.hears_cancelled):
            self.hooks.cancelled(list(cancelled))

    def forgo_undo(self, task_ids: Sequence[str]) -> None:
        """Let no undo bring back tasks whose ids are sent to the workers, which drop them."""
        if self.settings.undo:
            with suppress(StoreError):
                self.entries.forgo(task_ids)

    def take_back(self, cancelled: Cancelled) -> None:
        """Reset ``REVOKED``, which was stored after the task's id had been scheduled anew."""
        take_back(self.app, cancelled)

    def import_tasks(self) -> None:
        """Import the app's task modules as a worker does; log a warning if that fails."""
        try:
            self.app.loader.import_default_modules()
        except Exception as error:
            logger.warning("not all of the app's tasks could be imported: %s", repr(error))

    def check(self) -> None:
        """Validate the whole configuration.

        Raises:
            InvalidSetting: a setting is out of range, or no Redis is configured to hold tasks.
        """
        _ = self.endpoint

    def close(self) -> None:
        """Close idle shared connections; the next call opens new ones."""
        if self._made is not None:
            self._made.close()

    def start_anew(self, scripts_of: ScriptsOf = Scripts) -> None:
        """Drop the broker and the store; the next use builds them from the current configuration.

        Args:
            scripts_of: Binds the scripts to a Redis and its keys; tests bind them to a fake clock.
        """
        self.close()
        self._made = self._met = None
        vars(self).pop("broker", None)
        self.scripts_of = scripts_of

    @property
    def configured(self) -> Configured:
        """The objects built from the settings; rebuilt if a setting has changed."""
        made = self._made
        # This runs on every call, so it compares only the changes that Celery records.
        is_new = made is None or self.app.conf is not made.conf or made.changed() != made.changes
        if is_new:
            self._met = None  # of another store, perhaps
        if made is None or is_new or self._met not in (None, made.settings.shards):
            fresh = Configured(self, self._met)
            if not fresh.settings.enabled:
                raise SwitchedOff(self.app.main)
            # Rebuild everything: a list of which object depends on which setting could be
            # incomplete, and a forgotten setting would never take effect.
            if made is not None:
                made.close()
            self._made = made = fresh
        return made

    def _meet(self, error: StoreDiffers) -> None:
        """Use the number of shards that the store has, from the next step on."""
        made, theirs = self._made, error.theirs
        if made is None or error.name != "delayq_shards" or not re.fullmatch(r"\d{1,2}", theirs):
            return
        ours = self._met or made.settings.shards
        if 0 < int(theirs) <= MOST_SHARDS and int(theirs) != ours:
            self._met = int(theirs)
            logger.warning(_SHARDS, self._met, self._met, ours, self._met)


class HasServices(Protocol):
    """An object with an app's services: its ``DelayQ``, whose methods are the operations."""

    @property
    def services(self) -> Services: ...


class Configured:
    """The objects built from one state of the settings.

    Attributes:
        settings: The settings, validated.
        conf: The configuration they come from.
        changes: The values set for this package's settings when this was built.
        services: The app's services.
    """

    def __init__(self, services: Services, shards: int | None = None) -> None:
        """Read the settings; *shards*: the store's number, if it is not the app's."""
        # The first read loads a pending configuration, which replaces the `conf` object.
        services.app.conf.get(SETTINGS[0].key)
        self.conf = services.app.conf
        settings = Settings.load(self.conf)
        self.settings = settings if shards is None else replace(settings, shards=shards)
        self.services = services
        self.changes = self.changed()

    def changed(self) -> list[Any]:
        """Return the values currently set for this package's settings."""
        return [*map(self.conf.changes.get, _KEYS)] if works(Feature.LATER_SETTINGS) else []

    @cached_property
    def endpoint(self) -> Server:
        """The address of the store.

        Raises:
            InvalidSetting: no Redis is configured to hold tasks.
        """
        settings = self.settings
        names = written(self.conf, "delayq_url"), written(self.conf, "delayq_transport_options")
        options, slot = settings.transport_options, Keys(settings.prefix).slot
        return store_endpoint(settings.url, options, self.services.broker, names, slot)

    @cached_property
    def has_store(self) -> bool:
        """Whether a Redis is configured to hold tasks; if not, a warning says so once."""
        broker = self.services.broker
        if self.settings.url is not None or (broker.endpoint and not broker.failover):
            return True
        try:
            _ = self.endpoint
        except InvalidSetting as error:
            logger.warning(_NO_STORE, error)
        return False

    @cached_property
    def store_is_broker(self) -> bool:
        """Whether a script can push a message directly into the broker's lists."""
        return is_direct(self.services.broker, self.endpoint, self.settings)

    @cached_property
    def connection(self) -> Connection:
        return Connection(self.endpoint, self.settings.timeout)

    @cached_property
    def scripts(self) -> list[Scripts]:
        """The scripts of each shard, over the shared connection."""
        prefix, shards = self.settings.prefix, self.settings.shards
        each = [Keys(prefix, shard, shards) for shard in range(shards)]
        return [self.scripts_over(self.connection, keys) for keys in each]

    @cached_property
    def meeting_place(self) -> Scripts | None:
        """The scripts of the keys common to all numbers of shards, if they are not a shard's."""
        if self.settings.shards == 1:
            return None
        return self.scripts_over(self.connection, Keys(self.settings.prefix))

    def scripts_over(self, connection: Connection, keys: Keys) -> Scripts:
        """Return the scripts of a set of keys, over a connection to the store's Redis."""
        services = self.services
        return services.scripts_of(connection.at(keys.slot), keys, self.settings, services.hooks)

    @cached_property
    def membership(self) -> Membership:
        """What this process says of its app and broker when it joins the store."""
        broker = self.services.broker
        # "" means any app: one without a name, or whose module was run as a script.
        app = self.services.app.main or ""
        return Membership(
            broker.kind,
            broker.hosts,
            "" if app == "__main__" else app,
            self.endpoint.url,
            direct=self.store_is_broker,
            redis=beside(broker, self.endpoint),
            tagged=is_tagged(broker, self.settings),
        )

    @cached_property
    def entries(self) -> Entries:
        """The store's steps for callers."""
        now = self.services
        return Entries(self.scripts, self.membership, self.meeting_place, lambda: now.entries)

    @cached_property
    def copies(self) -> Copies:
        """The store's steps for a worker that receives a relayed task."""
        from .store.delivery import Copies

        return Copies(self.scripts, self.services.broker.visibility_timeout)

    def close(self) -> None:
        for scripts in vars(self).get("scripts", ()):
            scripts.connection.close()


def attach(app: Any, delayq: Any) -> None:
    """Set the ``DelayQ`` of *app*."""
    setattr(app, _ATTRIBUTE, delayq)


def made_for(app: Any) -> HasServices | None:
    """Return the app's ``DelayQ``, or ``None`` if it has none or it is switched off."""
    delayq: HasServices | None = None if find(app) is None else getattr(app, _ATTRIBUTE)
    return delayq


def find(app: Any) -> Services | None:
    """Return the services of the app's ``DelayQ``; ``None`` if it has none, or it is off."""
    delayq: HasServices | None = getattr(app, _ATTRIBUTE, None)
    return None if delayq is None or delayq.services.is_off else delayq.services


def services_of(app: Any) -> Services:
    """Return the services of the app's ``DelayQ``.

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


def mark_revoked(app: Celery, cancelled: Cancelled, *, late: bool = False) -> bool:
    """Store ``REVOKED``, and why, for a task that will not run, or for every part of a canvas.

    Never raises: the task is cancelled, and that answer must not depend on the result backend.

    Args:
        app: The app.
        cancelled: The task.
        late: Whether it was cancelled a while ago. A result that was stored since stays: it is from
            another task with this id, or from a copy that was delivered after all.

    Returns:
        Whether that is done.
    """
    try:
        waited_for = _waited_for(app, cancelled.task_id, cancelled.message)
    except Exception:
        logger.warning("task %s: its message cannot be read", cancelled.task_id, exc_info=True)
        return True  # it never can be
    try:
        for task_id, request in waited_for:
            state = states.PENDING
            if late or cancelled.outcome is Outcome.UNCERTAIN:
                state = app.backend.get_state(task_id)
            if state == states.PENDING or (late and state == states.RETRY):
                app.backend.mark_as_revoked(task_id, cancelled.reason, request=request)
    except Exception:
        logger.warning("task %s: REVOKED could not be stored", cancelled.task_id, exc_info=True)
        return False
    return True


def take_back(app: Celery, cancelled: Cancelled) -> None:
    """Reset ``REVOKED``, stored after the task's id had been scheduled anew; never raises."""
    try:
        for task_id, request in _waited_for(app, cancelled.task_id, cancelled.message):
            # A state that the new task has stored since stays.
            if app.backend.get_task_meta(task_id, cache=False)["status"] == states.REVOKED:
                app.backend.store_result(task_id, None, states.PENDING, request=request)
    except Exception:
        logger.warning("task %s: it waits, and is REVOKED", cancelled.task_id, exc_info=True)


def _waited_for(app: Celery, task_id: str, message: bytes) -> list[tuple[str, Any]]:
    accept = app.conf.accept_content
    headers, properties, body = decoded = message_body(message, accept)
    # The rpc:// backend sends a result to this address, which a worker takes from the message's
    # properties. The results of a canvas's parts go to the canvas's caller.
    reply_to = properties.get("reply_to")
    if headers.get("task") == LAUNCH:
        return [
            # Without its chord, which counts no parts before the launch.
            (part_id, _request(call, part_id, reply_to, chord=None))
            for part_id, part in leaf("canvas").parts_of(body)
            for call in [_call_of(*message_body(part, accept)) if part else {}]
        ]
    if headers.get("ignore_result"):
        return []
    # With its chord, which has to fail now instead of waiting forever for this part.
    return [(task_id, _request(_call_of(*decoded), task_id, reply_to))]


def _request(call: Mapping[str, Any], task_id: str, reply_to: Any, **own: Any) -> Any:
    return Context({**call, "reply_to": reply_to, "correlation_id": task_id, **own})


def _call_of(headers: dict[str, Any], properties: dict[str, Any], body: Any) -> dict[str, Any]:
    """Describe a call as the worker does that drops a revoked task: for ``result_extended``."""
    call = {**headers, "delivery_info": properties.get("delivery_info")}
    if isinstance(body, dict):  # of protocol 1
        return {**call, **body, "group": body.get("taskset")}
    if isinstance(body, (list, tuple)):  # else the app may not read it
        args, kwargs, embedded = body
        call.update(embedded, args=args, kwargs=kwargs)
    return call
