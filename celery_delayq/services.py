"""The parts of one app's ``DelayQ``, made from its configuration when they are first needed."""

from __future__ import annotations

from datetime import tzinfo
from functools import cached_property
from typing import Any

from celery import Celery

from .handover.link import Handoff
from .handover.relay import Relay
from .handover.scanner import Scanner
from .message.broker import Broker, store_endpoint
from .settings import Settings
from .store import Client, Engine, Entries, ScratchKeys, Wakeup
from .store.keys import Keys
from .store.scripts import Scripts

PUBLISH_TIMEOUT = 10.0  # seconds for a window of messages, and well inside a lease
ALIVE = 3  # safety intervals without a sign of life after which a scanner counts as gone


class Parts:
    """What the app is configured to, the store's two sides, and scanners."""

    def __init__(self, app: Celery) -> None:
        self.app = app

    @cached_property
    def settings(self) -> Settings:
        return Settings.load(self.app.conf)

    @cached_property
    def broker(self) -> Broker:
        return Broker.of(self.app.connection_for_write())

    @cached_property
    def store_is_broker(self) -> bool:
        """Whether a script can move a message straight into the broker's lists."""
        endpoint = self.broker.endpoint
        return (
            endpoint is not None
            and not self.broker.failover
            and endpoint.same_database(self._endpoint)
        )

    @property
    def timezone(self) -> tzinfo:
        zone: tzinfo = self.app.timezone
        return zone

    @cached_property
    def _endpoint(self) -> Any:
        return store_endpoint(self.settings.url, self.broker)

    @cached_property
    def _scripts(self) -> Scripts:
        return Scripts(Client(self._endpoint), Keys(self.settings.prefix))

    @cached_property
    def entries(self) -> Entries:
        return Entries(self._scripts)

    def check(self) -> None:
        """Read the whole configuration.

        Raises:
            InvalidSetting: a setting is out of its range, or there is no Redis to hold tasks.
        """
        _ = self._endpoint

    def scanner(self) -> Scanner:
        """A scanner of one's own; the caller starts and stops it."""
        settings = self.settings
        engine = self.engine(Scripts(Client(self._endpoint), self._scripts.keys))
        return Scanner(
            engine,
            Wakeup(self._endpoint, self._scripts.keys["wake"]),
            Relay(
                engine,
                Handoff(
                    self.app.connection_for_write,
                    timeout=min(PUBLISH_TIMEOUT, settings.lease * 0.3),
                ),
                lease=settings.lease,
            ),
            safety_interval=settings.safety_interval,
            lease=settings.lease,
        )

    def engine(self, scripts: Scripts) -> Engine:
        """What a scanner of this app does with a store."""
        return Engine(
            scripts,
            batch_size=self.settings.batch_size,
            lease=self.settings.lease,
            alive=self.settings.safety_interval * ALIVE,
        )

    def scratch_keys(self) -> ScratchKeys:
        """Keys to measure with, in the store's Redis."""
        return ScratchKeys(Client(self._endpoint), self.settings.prefix)

    def close(self) -> None:
        """Close this process's idle connections to Redis; the next call opens new ones."""
        self._scripts.client.close()
