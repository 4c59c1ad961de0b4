"""One app's settings, broker and store, each made when it is first needed.

    app.conf ---> settings
    broker URL -> broker ---+--> endpoint --> connection --> scripts --> entries
    delayq_url -------------+

This is what is handed down, in place of the app's ``DelayQ``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from functools import cached_property

from celery import Celery

from .message.broker import Broker, store_endpoint
from .settings import Settings
from .store import (
    Connection,
    Endpoint,
    Engine,
    Entries,
    Keys,
    PooledConnection,
    ScratchKeys,
    Scripts,
    Wakeup,
)

HEARTBEATS = 3  # safety intervals without a heartbeat after which a scanner counts as gone


def _nobody(*_: object) -> None:
    """What a hook does that nobody has set."""


@dataclass(frozen=True)
class Hooks:
    """Who is told of what happens to tasks; nobody, unless a function is given.

    A hook is called after the step, in the thread that took it, and must not raise.

    Attributes:
        scheduled: With the task id and the due time in ms.
        rescheduled: The same.
        cancelled: With the task id.
        dead: With the task id and the reason.
    """

    scheduled: Callable[[str, int], object] = _nobody
    rescheduled: Callable[[str, int], object] = _nobody
    cancelled: Callable[[str], object] = _nobody
    dead: Callable[[str, str], object] = _nobody


class Services:
    """What the rooms above need to know of one app.

    Args:
        app: The Celery app. Its configuration is read when something is first asked for.
        hooks: Who is told of what happens to tasks.
    """

    def __init__(self, app: Celery, hooks: Hooks | None = None) -> None:
        self.app = app
        self.hooks = hooks or Hooks()

    @cached_property
    def settings(self) -> Settings:
        """The checked settings.

        Raises:
            InvalidSetting: one is out of its range.
        """
        return Settings.load(self.app.conf)

    @cached_property
    def broker(self) -> Broker:
        """What the app's broker is; nothing is connected."""
        return Broker.of(self.app.connection_for_write())

    @cached_property
    def endpoint(self) -> Endpoint:
        """Where the store is.

        Raises:
            InvalidSetting: there is no Redis to keep tasks in.
        """
        return store_endpoint(self.settings.url, self.broker)

    @cached_property
    def store_is_broker(self) -> bool:
        """Whether a script can push a message straight into the broker's lists."""
        broker = self.broker
        return (
            broker.endpoint is not None
            and not broker.failover
            and broker.endpoint.same_database(self.endpoint)
        )

    @property
    def timezone(self) -> tzinfo:
        """The zone of naive times."""
        zone: tzinfo = self.app.timezone
        return zone

    def connect(self) -> Connection:
        """A connection to the store's Redis that nobody else uses; opened when first needed."""
        return PooledConnection(self.endpoint)

    @cached_property
    def scripts(self) -> Scripts:
        """The scripts on the store's keys, over the connection that callers share."""
        connection = PooledConnection(self.endpoint, self.settings.timeout)
        return Scripts(connection, Keys(self.settings.prefix))

    @cached_property
    def entries(self) -> Entries:
        """What callers do with the store."""
        return Entries(self.scripts)

    def engine(self, scripts: Scripts | None = None) -> Engine:
        """What a scanner does with the store, over a connection of its own unless one is given."""
        settings = self.settings
        return Engine(
            scripts or Scripts(self.connect(), self.scripts.keys),
            batch_size=settings.batch_size,
            lease=settings.lease,
            alive=settings.safety_interval * HEARTBEATS,
        )

    def wakeup(self) -> Wakeup:
        """What a scanner waits on."""
        return Wakeup(self.connect(), self.scripts.keys["wake"])

    def scratch_keys(self) -> ScratchKeys:
        """Keys to measure with, in the store's Redis."""
        return ScratchKeys(self.connect(), self.settings.prefix)

    def check(self) -> None:
        """Read the whole configuration.

        Raises:
            InvalidSetting: a setting is out of its range, or there is no Redis to keep tasks in.
        """
        _ = self.endpoint

    def close(self) -> None:
        """Close the idle connections that callers share; the next call opens new ones."""
        if "scripts" in vars(self):
            self.scripts.connection.close()
