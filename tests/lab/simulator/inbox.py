"""A broker that gives messages to workers, and keeps each until it is acknowledged.

send --> ready --take--> held --ack--> gone
           ^               |
           +--- flagged ---+    its worker died, or took too long without knowing
"""

import itertools
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tests.lab.simulator.world import SECOND, Actor, World

VISIBILITY = 10.0  # seconds that a worker may take


@dataclass(eq=False)
class Message:
    """A message that a process without this package sent.

    Attributes:
        plan: Its name, its id, and what its entry will be; a `Planned`.
        puts_off: Its task puts itself off when it runs; else the message is adopted.
        has_name: It has a name that is its own, by which it is acknowledged, as on Redis. Without,
            it is known by its task's id and time, as over AMQP.
        entries: How often it became an entry.
        is_over: It was run, or its task has failed.
        is_asked: A worker has asked whether it became an entry, and so has let it through, if not.
        through: The delivery that was let through last.
    """

    plan: Any
    puts_off: bool
    has_name: bool
    again: bool = False
    held: "Delivery | None" = None
    is_gone: bool = False
    entries: int = 0
    is_over: bool = False
    is_asked: bool = False
    through: "Delivery | None" = None

    def __str__(self) -> str:
        return self.plan.name

    @property
    def task_id(self) -> str:
        return self.plan.ids[0]

    @property
    def identity(self) -> tuple[str, str]:
        return self.task_id, self.plan.name


@dataclass(eq=False)
class Delivery:
    """A message in a worker's hands.

    Attributes:
        number: Among all deliveries.
        again: It is flagged: it may have been delivered before.
        was_taken: It had become an entry by then.
        is_lost: Its worker has died with it.
    """

    message: Message
    number: int
    worker: str
    received: float
    again: bool
    was_taken: bool
    is_lost: bool = False

    @property
    def task_id(self) -> str:
        return self.message.task_id

    @property
    def is_held(self) -> bool:
        """Whether the broker knows that this worker has it."""
        return self.message.held is self


class Inbox:
    """The messages of one world.

    Args:
        world: Where time passes.
        messages: All that will be sent.
    """

    def __init__(self, world: World, messages: list[Message]):
        self.messages = messages
        self._world = world
        self._ready: list[Message] = []
        self._given = itertools.count(1)
        self._all: list[Delivery] = []
        for message in messages:
            world.later(round(message.plan.pause_s * SECOND), lambda one=message: self._send(one))

    @property
    def is_over(self) -> bool:
        return all(message.is_gone for message in self.messages)

    def _send(self, message: Message) -> None:
        what = "puts itself off" if message.puts_off else "has an eta"
        self._world.say("inbox", f"{message} for {message.task_id} {what}")
        self._ready.append(message)

    def take(self, actor: Actor, but: Collection[str] = ()) -> Delivery | None:
        """The next message of another id than these, if there is one."""
        message = next((one for one in self._ready if one.task_id not in but), None)
        if message is None:
            return None
        self._ready.remove(message)
        taken, number = message.entries > 0, next(self._given)
        one = Delivery(message, number, actor.name, actor.monotonic(), message.again, taken)
        self._all.append(one)
        message.held, message.again = one, True
        self._world.say(actor.name, f"is given {message}{', again' * one.again}")
        dice = self._world.decisions.fault("taken back", f"{message} {number}")
        us = round(VISIBILITY * SECOND * (dice.random() ** 3 if dice else 1))
        self._world.later(us, lambda: self._take_back(one))
        return one

    def lose(self, worker: str) -> None:
        """Its connection is gone."""
        for one in self._all:
            one.is_lost = one.is_lost or one.worker == worker
        for message in self.messages:
            if message.held and message.held.worker == worker:
                self._take_back(message.held)

    def _take_back(self, one: Delivery) -> None:
        if one.is_held:
            self._world.say("inbox", f"takes {one.message} back from {one.worker}")
            one.message.held = None
            self._ready.append(one.message)

    def ack(self, one: Delivery) -> None:
        """A worker acknowledges it, which counts if the broker thinks that the worker has it."""
        message = one.message
        if one.is_held or (message.has_name and message.held):
            self._world.say(one.worker, f"acknowledges {message}")
            message.held, message.is_gone = None, True
