"""One moment of one id: the store, its clients and scanners, and what is on the wire."""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from tests.protocol.calls import HELD, NOW, Request, Store
from tests.protocol.model import Batch

NOBODY: frozenset[int] = frozenset()
MANY = 2  # more than that is the same


@dataclass(frozen=True)
class Scenario:
    """The calls of each client, and how much goes wrong."""

    clients: tuple[tuple[str, ...], ...]
    held: bool = False  # there is an entry at the start, due and acknowledged
    interrupted: tuple[int, ...] = (0,)  # the calls whose caller may leave before the deadline
    lags: tuple[tuple[int, ...], ...] = ((0, 1),)  # of the clients, at the start
    still: bool = False  # no time passes
    fine: bool = False  # a tick is shorter than a script, so that each has one of its own
    tombstones: bool = True  # how an entry left is known for a while
    jumps: tuple[int, ...] = ()  # ticks that Redis's clock may be set forward or back, once
    claims: int = 0  # in flight, if scanners relay; if 0, due entries are handed over

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Of each call; the one that made the first entry comes last."""
        return (*(kind for calls in self.clients for kind in calls), "schedule")

    @cached_property
    def calls(self) -> tuple[range, ...]:
        """Of each client, in turn."""
        ends = list(accumulate(map(len, self.clients)))
        return tuple(map(range, [0, *ends], ends))


class Client(NamedTuple):
    """A caller's clock, and its present call.

    ``lag``: how far its idea of Redis's time is behind the real one. It knows a lower bound.
    ``end``: of the present call, by that clock; None between two calls.
    """

    lag: int
    call: int
    end: int | None = None


class Call(NamedTuple):
    """The fate of a call, which no process in the world knows as a whole."""

    told: str = ""  # how it ended for its caller
    first: str = ""  # the first answer that the store had for it
    effects: int = 0  # how often it took effect
    after: frozenset[int] = NOBODY  # the calls that had ended before this one began
    overtaken: str = ""  # the kind of a call that began when this one had ended, and has its answer
    # Of what it scheduled:
    copies: int = 0  # that the broker got
    unmarked: int = 0  # those that are not marked as a possible duplicate
    versions: frozenset[int] = NOBODY  # which these were
    lowest: int = 0  # version that it may be delivered in
    cancelled: bool = False  # for certain
    revoked: int = 0  # replaced, or kept


OVER = Call(told="over")


class Scanner(NamedTuple):
    """The work of a scanner: first a claim that it asked for, then a batch."""

    token: int
    owner: int | None = None
    batch: Batch | None = None


class Word(NamedTuple):
    """A scanner's request to the store."""

    step: str  # claim, ack, or the verdict of a nack
    token: int


class World(NamedTuple):
    """One moment. It is always 0 o'clock: as time passes, all else moves into the past.

    Parts that no longer matter are left out, so that equal situations are one world.
    """

    store: Store
    clients: tuple[Client, ...]
    calls: tuple[Call, ...]
    wire: frozenset[Request] = frozenset()
    wrong: str = ""
    scanners: tuple[Scanner | None, ...] = (None, None)
    words: frozenset[Word] = frozenset()
    asked: int = 0  # claims that were sent
    claimed: int = 0  # and that ran
    jumped: bool = False

    def caller_of(self, call: int) -> int | None:
        """The client that waits for an answer to it."""
        for who, client in enumerate(self.clients):
            if client.call == call and client.end is not None:
                return who
        return None

    def time_left(self, call: int) -> int:
        who = self.caller_of(call)
        return 0 if who is None else self.clients[who].end - NOW

    def with_client(self, who: int, **changes) -> "World":
        client = self.clients[who]._replace(**changes)
        return self._replace(clients=(*self.clients[:who], client, *self.clients[who + 1 :]))

    def with_call(self, call: int, **changes) -> "World":
        changed = self.calls[call]._replace(**changes)
        return self._replace(calls=(*self.calls[:call], changed, *self.calls[call + 1 :]))

    def with_scanner(self, who: int, scanner: Scanner | None) -> "World":
        return self._replace(scanners=(*self.scanners[:who], scanner, *self.scanners[who + 1 :]))

    def with_copy(self, owner: int, version: int, *, marked: bool) -> "World":
        call = self.calls[owner]
        return self.with_call(
            owner,
            copies=min(MANY, call.copies + 1),
            unmarked=min(MANY, call.unmarked + (not marked)),
            versions=call.versions | {version},
        )


Step = tuple[str, World]


def beginnings(scenario: Scenario) -> list[World]:
    calls = (Call(),) * len(scenario.kinds)
    store = Store(entry=HELD, owner=len(calls) - 1) if scenario.held else Store()
    return [
        World(
            store,
            tuple(Client(lag, own[0]) for lag, own in zip(lags, scenario.calls, strict=False)),
            calls,
        )
        for lags in scenario.lags
    ]
