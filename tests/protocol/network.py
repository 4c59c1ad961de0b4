"""Every order of events between two clients, a store and scanners, over an unreliable network.

The wire is a set of requests. A request stays on it, and may arrive at any time, any number of
times, or never: that covers delay, duplication, loss and an impatient caller's repetition. A reply
is read, or lost. A client that sleeps does nothing for a while; one that dies does nothing more.
(The search covers both, as no client has to take the next step.)
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from tests.protocol import relay
from tests.protocol.calls import (
    EFFECTS,
    NOTHING_THERE,
    NOW,
    REFUSALS,
    TIMEOUT,
    Ordered,
    Request,
    Store,
    moved,
)
from tests.protocol.model import GONE
from tests.protocol.search import way_to
from tests.protocol.world import MANY, OVER, Client, Scenario, Step, World, beginnings

GIVEN_UP = "took effect after its caller had given up"


def steps(world: World, scenario: Scenario, protocol: Ordered) -> Iterator[Step]:
    """The possible next steps."""
    for who, client in enumerate(world.clients):
        if client.end is not None:
            yield from waits(world, scenario, protocol, who)
        elif client.call in scenario.calls[who]:
            kind = scenario.kinds[client.call]
            yield f"{'AB'[who]} sends {kind}", sent(world, who, kind)
    then = later(world, protocol, {world.store.owner}) if scenario.fine else world
    for request in then.wire:
        yield from _arrives(then, protocol, request)
    if scenario.claims:
        yield from relay.steps(world, scenario, protocol)
    elif world.store.entry.place != GONE:
        yield "handed over", _handed_over(world, scenario, protocol)
    if (forgetful := protocol.forget(world.store)) != world.store:
        yield "forgotten", world._replace(store=forgetful)
    for ticks in () if world.jumped else scenario.jumps:
        yield f"Redis's clock is set by {ticks:+}", _clock_set(world, ticks)
    if not scenario.still:
        yield "time passes", later(world, protocol, {world.store.owner})


def sent(world: World, who: int, kind: str) -> World:
    client = world.clients[who]
    known = NOW - client.lag
    over = frozenset(call for call, each in enumerate(world.calls) if each.told and each != OVER)
    return (
        world.with_client(who, end=NOW + TIMEOUT)
        .with_call(client.call, after=over)
        ._replace(wire=world.wire | {Request(client.call, kind, known, known + TIMEOUT)})
    )


def waits(world: World, scenario: Scenario, protocol: Ordered, who: int) -> Iterator[Step]:
    name, client = "AB"[who], world.clients[who]
    if client.end <= NOW:
        yield f"{name} gives up", ended(world, who, "given up")
    elif client.call in scenario.interrupted:
        yield f"{name} is interrupted", ended(world, who, "interrupted")
    if protocol.repeats:
        again = {each._replace(again=True) for each in world.wire if each.call == client.call}
        yield f"{name} repeats its call", world._replace(wire=world.wire | again)


def ended(world: World, who: int, told: str) -> World:
    call = world.clients[who].call
    return world.with_client(who, call=call + 1, end=None).with_call(call, told=told)


def _arrives(world: World, protocol: Ordered, request: Request) -> Iterator[Step]:
    store, answer = protocol.run(world.store, request)
    name = f"{request.kind} {request.call} arrives: {answer}"
    who = world.caller_of(request.call)
    if answer in REFUSALS:
        if who is not None and world.clients[who].end > NOW:
            yield name, issued_anew(world, who, request)
        return
    after = _written(world, store, request, answer)
    if after is not world:
        yield f"{name}, its reply is lost", after
    if who is not None:
        if answer != after.calls[request.call].first:
            after = after._replace(wrong="a repetition had another answer")
        yield name, ended(after.with_client(who, lag=0), who, answer)


def issued_anew(world: World, who: int, request: Request) -> World:
    anew = request._replace(issued=NOW, deadline=world.clients[who].end, again=True)
    return world.with_client(who, lag=0)._replace(wire=world.wire | {anew})


def _written(world: World, store: Store, request: Request, answer: str) -> World:
    """The world after a script, with the facts that `broken` needs."""
    before, call = world.store, world.calls[request.call]
    took = (store.entry, store.owner) != (before.entry, before.owner)
    after = world if store is before else world._replace(store=store)
    if not call.first:
        if took or answer in NOTHING_THERE:
            for older in call.after:
                after = after.with_call(older, overtaken=request.kind)
        after = after.with_call(request.call, first=answer, after=frozenset())
    if not took:
        return after
    if call.first and call.first not in EFFECTS:
        after = after._replace(wrong="took effect after an answer that said that it had not")
    if call.told == "given up":
        after = after._replace(wrong=GIVEN_UP)
    if call.overtaken:
        after = after._replace(wrong=f"an older {request.kind} after a newer {call.overtaken}")
    if answer == "done" and request.kind == "cancel":
        after = after.with_call(before.owner, cancelled=True)
    if answer == "done" and request.kind == "reschedule":
        after = after.with_call(before.owner, lowest=store.entry.version)
    return after.with_call(request.call, effects=min(MANY, call.effects + 1))


def _handed_over(world: World, scenario: Scenario, protocol: Ordered) -> World:
    store = protocol.hand_over(world.store)
    if not scenario.tombstones:
        store = protocol.forget(store)
    after = world.with_copy(world.store.owner, world.store.entry.version, marked=False)
    return after._replace(store=store)


def later(world: World, protocol: Ordered, owners: set[int | None]) -> World:
    """A tick later, without the parts that no process can see any more.

    Args:
        owners: The calls whose entries are held.
    """
    later = (_one_tick_older(each) for each in world.wire)
    wire = frozenset(
        each
        for each in later
        if protocol.out_of_time(each) != "late" or world.time_left(each.call) > 1
    )
    clients = tuple(
        each if not each.end else Client(each.lag, each.call, each.end - 1)
        for each in world.clients
    )
    held_by = {scanner.owner for scanner in world.scanners if scanner}
    running = {each.call for each in wire} | owners | held_by
    calls = tuple(
        OVER
        if each.told and call not in running
        else each._replace(after=each.after & running)
        if each.after
        else each
        for call, each in enumerate(world.calls)
    )
    oldest = min((each.issued for each in wire), default=NOW - 1)
    store = protocol.later(world.store, oldest, running)
    return world._replace(store=store, clients=clients, calls=calls, wire=wire)


def _clock_set(world: World, ticks: int) -> World:
    """By Redis's new clock everything is older, or younger; callers learn it later."""
    return world._replace(
        jumped=True,
        store=moved(world.store, ticks),
        clients=tuple(each._replace(lag=each.lag + ticks) for each in world.clients),
        wire=frozenset(
            each._replace(issued=each.issued - ticks, deadline=each.deadline - ticks)
            for each in world.wire
        ),
    )


def _one_tick_older(request: Request) -> Request:
    oldest = NOW - TIMEOUT - 2  # to every comparison, older is as old
    call, kind, issued, deadline, again = request
    return Request(call, kind, max(oldest, issued - 1), max(NOW, deadline - 1), again)


def broken(world: World, scenario: Scenario) -> Iterator[str]:
    """The promises that this moment breaks."""
    if world.wrong:
        yield world.wrong
    for number, (kind, call) in enumerate(zip(scenario.kinds, world.calls, strict=True)):
        if call.unmarked > 1:
            yield "two unmarked copies"
        if call.cancelled and (call.copies or world.store.owner == number):
            yield "cancelled, yet held or delivered"
        if call.versions and min(call.versions) < call.lowest:
            yield "moved, yet delivered"
        if kind == "reschedule" and call.effects > 1:
            yield "moved twice"
        if kind == "cancel" and call.effects and call.told in NOTHING_THERE:
            yield "cancelled, and said that there was nothing"


class Found(NamedTuple):
    """The first error, with a shortest way there, and the answers seen by then."""

    wrong: str
    way: list[str]
    worlds: int
    answers: set[str]


def search(
    scenario: Scenario,
    protocol: Ordered,
    *,
    until: str = "",
    ignoring: str | tuple[str, ...] = "nothing",
) -> Found:
    """Visit every reachable world, or stop at the first error.

    Args:
        until: A part of the name of the error to find; any error by default.
        ignoring: The first words of errors to ignore.
    """
    came_from: dict[World, Step | None] = dict.fromkeys(beginnings(scenario))
    queue, names = deque(came_from), set()
    while queue:
        world = queue.popleft()
        for name, after in steps(world, scenario, protocol):
            if after in came_from:
                continue
            came_from[after] = (name, world)
            names.add(name)
            for wrong in broken(after, scenario):
                if until in wrong and not wrong.startswith(ignoring):
                    return found(wrong, way_to(after, came_from), came_from, names)
            queue.append(after)
    return found("", [], came_from, names)


def found(wrong: str, way: list[str], came_from: dict, names: set[str]) -> Found:
    answers = {name.partition(": ")[2].partition(",")[0] for name in names}
    return Found(wrong, way, len(came_from), answers - {""})
