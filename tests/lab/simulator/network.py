"""The way of a request to Redis and of its reply back: held, lost, doubled, late, by the seed."""

import random
from dataclasses import dataclass
from typing import Any

from tests.lab.simulator.world import SECOND, Actor

TIMEOUT = 2.0  # seconds that a step takes at most, unless it sets its own limit
LATE = 12  # seconds that a request or a reply is late at most: more than any call takes


@dataclass
class Request:
    """One command on its way, and what its sender was doing."""

    sender: str
    where: str  # its name among the decisions
    step: str
    text: bytes
    call: Any = None


class Interrupted(BaseException):
    """Raised by a signal or by another library's time-out, at any point of a call."""


class Network:
    """All requests and replies that are on their way."""

    def __init__(self, world: Any, served: Any):
        self._world = world
        self._decisions = world.decisions
        self._served = served  # serves a request, and returns the reply

    def connect(self, actor: Actor, where: str, step: str) -> None:
        """Find a connection.

        Raises:
            ConnectionError: there is none; nothing was sent.
        """
        if self._decisions.fault("refused", where):
            actor.wait(100)
            self._world.say(actor.name, f"{step}: no connection")
            raise ConnectionError("refused")

    def ask(self, actor: Actor, where: str, step: str, text: bytes, until: float) -> Any:
        """Send a request and wait for its reply.

        Raises:
            ConnectionError: the connection broke.
            TimeoutError: no reply in time.
        """
        request = Request(actor.name, where, step, text, actor.call)
        self._send(request, actor)
        if self._decisions.fault("dead", where) and actor.name.startswith(("s", "w", "x", "o")):
            self._world.say(actor.name, f"dies after {step} was sent")
            actor.die()
        answer = actor.wait(actor.until(until))
        if answer is None:
            self._world.say(actor.name, f"{step}: no answer in time")
            raise TimeoutError("no answer in time")
        return answer[0]

    def _send(self, request: Request, actor: Actor) -> None:
        waker, decisions, where = actor.waker(), self._decisions, request.where
        dice = decisions.dice(where)
        way = dice.randrange(100, 2000)
        late = decisions.fault("held", where)
        if request.call and request.call.to_be_interrupted:
            late = late or decisions.fault("overtaken", where)
        if late:
            way += self._late(late)
            self._note(request, f"held for {way / SECOND:.6f} s")
        if broken := decisions.fault("reset", where):
            self._note(request, "its connection breaks")
            error = ConnectionError("reset")
            self._world.later(broken.randrange(2 * way), lambda: waker([error]))
        if decisions.fault("lost", where):
            self._note(request, "lost")
        else:
            self._world.later(way, lambda: self._arrive(request, waker))
        if again := decisions.fault("doubled", where):
            self._note(request, "doubled")
            self._world.later(way + self._late(again), lambda: self._arrive(request, None))

    def _arrive(self, request: Request, waker: Any) -> None:
        reply = self._served(request)
        decisions, where = self._decisions, request.where
        if waker is None:
            return
        if decisions.fault("reply lost", where):
            self._world.say("network", f"loses the reply to {request.where}")
            return
        way = decisions.dice(f"{where} reply").randrange(100, 2000)
        if late := decisions.fault("reply held", where):
            way += self._late(late)
            self._world.say("network", f"holds the reply to {where} for {way / SECOND:.6f} s")
        self._world.later(way, lambda: waker([reply]))

    def _late(self, dice: random.Random) -> int:
        return round(dice.choice((0.01, 0.3, 1, LATE)) * dice.random() * SECOND)

    def _note(self, request: Request, what: str) -> None:
        self._world.say("network", f"{request.where} {request.step}: {what}")
