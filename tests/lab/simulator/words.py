"""The messages that Redis publishes to scanners: from the real channels to the listeners.

script --PUBLISH--> the lab's one subscription, read after each request
                       |
                       +--> each scanner that listens there, a little later; or it is lost
"""

from typing import Any

from tests.lab.simulator.world import SECOND, Actor, World


class Words:
    """One real subscription to the channels of all scanners that listen."""

    def __init__(self, world: World, lab: Any):
        self._world = world
        self._lab = lab
        self._listening: dict[str, Ear] = {}
        lab.forget_channels()

    def channels(self, name: str) -> list[str]:
        return self._lab.inside.channels(name)

    def listen(self, ear: "Ear") -> None:
        self._listening[ear.actor.name] = ear
        self._lab.subscribe(*self.channels(ear.actor.name))

    def stop(self, ear: "Ear") -> None:
        if self._listening.pop(ear.actor.name, None):
            others = {one for name in self._listening for one in self.channels(name)}
            self._lab.unsubscribe(*(set(self.channels(ear.actor.name)) - others))

    def carry(self) -> None:
        """Pass the messages published since the last look to the listeners."""
        for channel in self._lab.published() if self._listening else ():
            for name, ear in list(self._listening.items()):
                if channel in self.channels(name):
                    ear.is_told()


class Ear:
    """One scanner, as far as it listens."""

    def __init__(self, actor: Actor, words: Words):
        self.actor = actor
        self._words = words
        self._listens = False
        self._broken = False
        self._told = False
        self._waker: Any = None

    def listen(self) -> bool:
        """Begin to; whether it did not before.

        Raises:
            ConnectionError: it cannot.
        """
        if self._listens:
            return False
        where = self.actor.step()
        if self.actor.world.decisions.fault("refused", where):
            raise ConnectionError("refused")
        self.actor.wait(self.actor.world.decisions.dice(where).randrange(100, 2000))
        self._words.listen(self)
        self._listens = True
        return True

    def wait(self, seconds: float) -> bool:
        """Wait for a word; whether there was one.

        Raises:
            ConnectionError: there may have been.
        """
        if not self._told and not self._broken:
            self._waker = self.actor.waker()
            self.actor.wait(self.actor.until(self.actor.monotonic() + seconds))
            self._waker = None
        told, self._told = self._told, False
        if self._broken:
            self._listens = self._broken = False
            raise ConnectionError("its connection broke")
        return told

    def is_told(self) -> None:
        """A word for this scanner has left Redis."""
        world, where = self.actor.world, f"{self.actor.name} is told at {self.actor.world.now_us}"
        if world.decisions.fault("word lost", where):
            world.say("network", f"loses a word to {self.actor.name}, and its connection")
            self._words.stop(self)
            world.later(SECOND, lambda: self._arrive(is_broken=True))
        else:
            way = world.decisions.dice(where).randrange(100, 2000)
            world.later(way, lambda: self._arrive(is_broken=False))

    def _arrive(self, *, is_broken: bool) -> None:
        self._told, self._broken = self._told or not is_broken, self._broken or is_broken
        if self._waker is not None:
            self._waker()

    def has_died(self) -> None:
        """Redis finds that out later, and believes until then that somebody listens."""
        us = self.actor.world.decisions.dice(f"{self.actor.name} hangs up").randrange(3 * SECOND)
        self.actor.world.later(us, lambda: self._words.stop(self))
