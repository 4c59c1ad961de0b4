"""A broker that takes messages, loses them, or its word that it has them.

The link and the publisher are the package's own, down to kombu's ``Producer``.
"""

from types import SimpleNamespace
from typing import Any

from kombu.exceptions import ChannelError

from celery_delayq import clock
from celery_delayq.handover.link import Link
from celery_delayq.handover.publishers import OneByOne
from tests.simulator.world import SECOND, Actor

TIMEOUT = 1.0  # seconds that it may take for a message


class Broker:
    """What arrived is told to the judge."""

    def __init__(self, world: Any, judge: Any):
        self._world = world
        self._judge = judge

    def arrive(self, sender: str, body: bytes, headers: dict[str, Any]) -> None:
        self._judge.published(sender, body, headers)

    def take(self, actor: Actor, body: bytes, headers: dict[str, Any]) -> None:
        """Publish a message, as kombu does.

        Raises:
            ChannelError: it says no.
            ConnectionError: it is lost, and perhaps the message with it.
        """
        actor.may_fall_asleep()
        decisions, where = self._world.decisions, actor.step()
        actor.wait(decisions.dice(where).randrange(100, 2000))
        if decisions.fault("dead", where):
            self._world.say(actor.name, "dies before it publishes")
            actor.die()
        if decisions.fault("publish refused", where):
            self._world.say("broker", "refuses a message")
            raise ChannelError("refused")
        if decisions.fault("publish lost", where):
            self._world.say("broker", "a message and its connection are lost")
            raise ConnectionError("lost")
        if dice := decisions.fault("publish late", where):
            us = round(dice.uniform(0, 40) * SECOND)
            self._world.say("broker", f"a message will be {us / SECOND:.6f} s late")
            self._world.later(us, lambda: self.arrive(actor.name, body, headers))
            raise ConnectionError("silent")
        self.arrive(actor.name, body, headers)
        if decisions.fault("confirm lost", where):
            self._world.say("broker", "its word that it has a message is lost")
            raise ConnectionError("lost")
        if decisions.fault("dead", f"{where} after"):
            self._world.say(actor.name, "dies after it has published")
            actor.die()


class SimulatedLink(Link):
    """The package's link, whose connection is to the broker of this world."""

    def __init__(self, actor: Actor, broker: Broker):
        super().__init__(lambda: None, timeout=TIMEOUT)
        self._actor = actor
        self._broker = broker

    def _open(self) -> OneByOne:
        self._publisher = _Publisher(self._actor, self._broker)
        self._used = clock.monotonic()
        return self._publisher


class _Publisher(OneByOne):
    def __init__(self, actor: Actor, broker: Broker):
        self._actor = actor
        self._broker = broker
        errors = SimpleNamespace(
            recoverable_connection_errors=(ConnectionError,), channel_errors=()
        )
        super().__init__(errors, TIMEOUT)

    def _open(self) -> None:
        self._producer = SimpleNamespace(publish=self._take, channel=None)

    def probe(self) -> None:
        if self._actor.world.decisions.fault("broker away", self._actor.step()):
            raise ConnectionError("away")

    def _take(self, body: bytes, *, headers: dict[str, Any], **_: Any) -> None:
        self._broker.take(self._actor, body, headers)
