"""One moment of messages with one identity: the broker, the workers, the store, and the wire."""

from dataclasses import dataclass
from typing import NamedTuple

from tests.protocol.taking import Hand, Request, Store

UNSENT, READY, GONE = "unsent", "ready", "gone"  # where a message is, if no worker has it
MANY = 2  # more than that is the same


@dataclass(frozen=True)
class Scenario:
    """What workers do with messages, and how much goes wrong."""

    puts_off: bool = False  # they run the task, which puts itself off; else they adopt
    messages: int = 1  # of one identity, each sent when the broker has none
    faults: int = 2  # deaths, and messages that the broker takes back
    calls: int = 3  # that workers make of the store
    cancels: int = 1
    moves: int = 0
    by_tag: bool = False  # an acknowledgement counts, whoever has the message by now
    tool: bool = False  # the second worker is one that empties a list


class Message(NamedTuple):
    """Where a message is; and what came of it, which nobody in the world knows as a whole."""

    at: str | int = UNSENT  # a number: that worker has it
    again: bool = False  # it is flagged when it is delivered
    entries: int = 0  # that it became
    firsts: int = 0  # runs for which Celery knows of no other
    ended: bool = False  # it was run, or has failed, visibly
    cancelled: bool = False  # as an entry, for certain


class World(NamedTuple):
    """One moment."""

    messages: tuple[Message, ...]
    store: Store
    faults: int
    cancels: int
    moves: int
    calls: int = 0  # that were made
    hands: tuple[Hand | None, ...] = (None, None)
    wire: frozenset[Request] = frozenset()
    wrong: str = ""

    def with_message(self, number: int, **changes) -> "World":
        message = self.messages[number]._replace(**changes)
        messages = (*self.messages[:number], message, *self.messages[number + 1 :])
        return self._replace(messages=messages)

    def with_hand(self, who: int, hand: Hand | None) -> "World":
        return self._replace(hands=(*self.hands[:who], hand, *self.hands[who + 1 :]))

    def doing(self, who: int, step: str) -> "World":
        return self.with_hand(who, self.hands[who]._replace(step=step))

    def but(self, what: str) -> "World":
        return self._replace(wrong=self.wrong or what)


Step = tuple[str, World]


def without_entry(world: World) -> World:
    return world._replace(store=world.store._replace(entry=None))


def changed(world: World) -> World:
    """What was issued before now is stale."""
    return world._replace(wire=frozenset(each._replace(stale=True) for each in world.wire))


def cancelled(world: World) -> World:
    return changed(without_entry(world))


def marked(world: World) -> World:
    """After every delivery that somebody has in his hands."""
    return world._replace(
        store=world.store._replace(marked=True),
        hands=tuple(each and each._replace(fresh=True) for each in world.hands),
        wire=frozenset(each._replace(fresh=True) for each in world.wire),
    )


def without_vain_requests(world: World) -> World:
    """The same world without requests that have run, and that nobody waits for."""
    answered = {call for call, _ in world.store.answers}
    waited = {hand.call for hand in world.hands if hand and hand.step == "asks"}
    wire = frozenset(
        each for each in world.wire if each.call not in answered or each.call in waited
    )
    answers = frozenset(each for each in world.store.answers if each[0] in waited)
    return world._replace(wire=wire, store=world.store._replace(answers=answers))
