"""A broker that takes messages, and may lose them, or its confirmations."""

from typing import Any

from tests.lab.simulator.driver import Refused
from tests.lab.simulator.world import SECOND, Actor

TIMEOUT = 1.0  # the most seconds for a message


class Broker:
    """Reports each message that arrives to the judge."""

    def __init__(self, world: Any, judge: Any):
        self._world = world
        self._judge = judge

    def arrive(self, sender: str, body: bytes, headers: dict[str, Any]) -> None:
        self._judge.published(sender, body, headers)

    def probe(self, actor: Actor) -> None:
        """Check that it is reachable.

        Raises:
            ConnectionError: It is not.
        """
        if self._world.decisions.fault("broker away", actor.step()):
            raise ConnectionError("away")

    def take(self, actor: Actor, body: bytes, headers: dict[str, Any]) -> None:
        """Publish a message, as kombu does.

        Raises:
            Refused: The broker refuses the message.
            ConnectionError: The connection is lost, and perhaps the message with it.
        """
        actor.may_fall_asleep()
        decisions, where = self._world.decisions, actor.step()
        actor.wait(decisions.dice(where).randrange(100, 2000))
        if decisions.fault("dead", where):
            self._world.say(actor.name, "dies before it publishes")
            actor.die()
        if decisions.fault("publish refused", where):
            self._world.say("broker", "refuses a message")
            raise Refused("refused")
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
