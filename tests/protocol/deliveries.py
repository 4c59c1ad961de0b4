"""Every order of events of messages, a broker, two workers and a store, on an unreliable network.

The broker keeps a message until it is acknowledged. It delivers it again, flagged, when a worker
dies, or when it believes that; then the worker goes on with what it has in its hands. What a worker
asks of the store stays on the wire until the call has ended, beyond the worker's own end. Meanwhile
a user cancels, moves, or sends the same task once more, and a scanner hands over.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from tests.protocol.messages import (
    GONE,
    MANY,
    READY,
    UNSENT,
    Message,
    Scenario,
    Step,
    World,
    cancelled,
    changed,
    marked,
    without_entry,
    without_vain_requests,
)
from tests.protocol.search import way_to
from tests.protocol.taking import STALE, Hand, Request, Store, Taking


def steps(world: World, scenario: Scenario, protocol: Taking) -> Iterator[Step]:
    """Whatever can happen next."""
    yield from _users(world)
    for who, hand in enumerate(world.hands):
        name, in_place = "AB"[who], protocol.in_place and scenario.tool and who == 1
        if hand is None:
            yield from _delivered(world, protocol, who, in_place=in_place)
            continue
        for what, after in _goes_on(world, scenario, protocol, who, in_place=in_place):
            yield f"{name} {what}", after
        if world.faults:
            yield from _fails(world, who)
    for request in world.wire:
        yield from _arrives(world, protocol, request)
    if world.store.entry is not None:
        yield "handed over", without_entry(world)
    if world.store.marked and (protocol.forgets or not _may_be_asked_for(world)):
        yield "the mark is forgotten", world._replace(store=world.store._replace(marked=False))


def _may_be_asked_for(world: World) -> bool:
    at_broker = any(each.at not in (UNSENT, GONE) for each in world.messages)
    return at_broker or any(world.hands) or bool(world.wire)


def _users(world: World) -> Iterator[Step]:
    entry = world.store.entry
    for number, message in enumerate(world.messages):
        if message.at == UNSENT and all(each.at == GONE for each in world.messages[:number]):
            yield f"{number} is sent", world.with_message(number, at=READY)
    if world.cancels:
        after = cancelled(world._replace(cancels=world.cancels - 1))
        if entry is None:
            yield "cancel: not found", after
        else:
            yield "cancel: done", after.with_message(entry, cancelled=True)
    if world.moves and entry is not None:
        yield "moved", changed(world)._replace(moves=world.moves - 1)


def _delivered(world: World, protocol: Taking, who: int, *, in_place: bool) -> Iterator[Step]:
    for number, message in enumerate(world.messages):
        if message.at != READY:
            continue
        hand = Hand(number, message.again or in_place, message.entries > 0, "has")
        after = world.with_hand(who, hand)
        if in_place:
            yield f"{'AB'[who]} sees {number}", after
            continue
        after = after.with_message(number, at=GONE if protocol.acks_first else who)
        yield f"{number} is delivered to {'AB'[who]}" + ", again" * message.again, after


def _fails(world: World, who: int) -> Iterator[Step]:
    number, fewer = world.hands[who].message, world._replace(faults=world.faults - 1)
    name = f"{'AB'[who]} dies"
    if world.messages[number].at == who:
        fewer = fewer.with_message(number, at=READY, again=True)
        yield f"the broker takes {number} back from {'AB'[who]}", fewer
    yield name, fewer.with_hand(who, None)


def _goes_on(
    world: World, scenario: Scenario, protocol: Taking, who: int, *, in_place: bool
) -> Iterator[Step]:
    step = world.hands[who].step
    if step == "has":
        yield _begins(world, scenario, protocol, who)
    elif step == "ran" and protocol.marks_first:
        yield "marks it", marked(world).doing(who, "marked")
    elif step in ("ran", "marked"):
        yield from _asks(world, scenario, who)
    elif step == "asks":
        yield "has no answer in time", _unsure(world, protocol, who)
    elif step == "stored" and protocol.marks_after:
        yield "marks it", marked(world).doing(who, "done")
    elif step == "own":
        yield "leaves it to Celery", _let_go(_runs(world, scenario, who), scenario, who)
    elif in_place:
        yield from _removes(world, who)
    else:
        yield "acknowledges", _let_go(world, scenario, who)


def _begins(world: World, scenario: Scenario, protocol: Taking, who: int) -> Step:
    hand = world.hands[who]
    if scenario.puts_off:
        if protocol.is_dropped(world.store, hand):
            return "finds it put off", world.doing(who, "done")
        after = world.doing(who, "ran")
        return "runs it", after.but("runs again, and was put off") if hand.over else after
    if protocol.looks and hand.again and world.store.marked:
        return "finds it taken", world.doing(who, "done")
    return "adopts it", world.doing(who, "ran")


def _asks(world: World, scenario: Scenario, who: int) -> Iterator[Step]:
    if world.calls == scenario.calls:
        return
    hand = world.hands[who]
    request = Request(world.calls, hand.message, hand.again, hand.fresh)
    after = world._replace(calls=world.calls + 1, wire=world.wire | {request})
    yield (
        f"asks {request.call}",
        after.with_hand(who, hand._replace(step="asks", call=request.call)),
    )


def _unsure(world: World, protocol: Taking, who: int) -> World:
    hand = world.hands[who]
    # The call's deadline has passed: what is on its way runs no more.
    wire = frozenset(each for each in world.wire if each.call != hand.call)
    return world._replace(wire=wire).with_hand(who, protocol.unsure(hand))


def _runs(world: World, scenario: Scenario, who: int) -> World:
    """Celery runs it when it is due; or the task fails, as it could not be put off."""
    hand = world.hands[who]
    message = world.messages[hand.message]
    after = world.with_message(hand.message, ended=True)
    if scenario.puts_off:
        return after
    if message.cancelled:
        after = after.but("cancelled, and runs")
    if hand.again:
        return after
    firsts = min(MANY, message.firsts + 1)
    return _counted(after.with_message(hand.message, firsts=firsts), hand.message)


def _counted(world: World, number: int) -> World:
    message = world.messages[number]
    twice = message.entries + message.firsts > 1
    return world.but("twice, and not flagged") if twice else world


def _let_go(world: World, scenario: Scenario, who: int) -> World:
    """The worker acknowledges it, which counts where the broker thinks that it has it."""
    number = world.hands[who].message
    after, at = world.with_hand(who, None), world.messages[number].at
    if at == who or (scenario.by_tag and at in (0, 1)):
        after = after.with_message(number, at=GONE)
    return after


def _removes(world: World, who: int) -> Iterator[Step]:
    """From the list. Where it is gone from there, a worker has it, and the entry is not needed."""
    hand, after = world.hands[who], world.with_hand(who, None)
    number = hand.message
    if world.messages[number].at == READY:
        yield "removes it", after.with_message(number, at=GONE)
    elif hand.step == "stored" and world.store.entry == number:
        entries = world.messages[number].entries - 1
        yield "cancels it", cancelled(after).with_message(number, entries=entries)
    else:
        yield "lets it be", after


def _arrives(world: World, protocol: Taking, request: Request) -> Iterator[Step]:
    store, answer = protocol.run(world.store, request)
    name = f"{request.call} arrives: {answer}"
    waits = [who for who, hand in enumerate(world.hands) if _waits_for(hand, request)]
    if answer == STALE:
        for _ in waits:
            yield name, world._replace(wire=world.wire | {request._replace(stale=False)})
        return
    after = world._replace(store=store)
    if store.entry != world.store.entry:
        after = _written(after, request.message)
    if after != world:
        yield f"{name}, its reply is lost", after
    for who in waits:
        yield name, after.doing(who, protocol.told(answer))


def _waits_for(hand: Hand | None, request: Request) -> bool:
    return hand is not None and hand.step == "asks" and hand.call == request.call


def _written(world: World, number: int) -> World:
    message = world.messages[number]
    after = world.with_message(number, entries=min(MANY, message.entries + 1))
    if message.cancelled:
        after = after.but("cancelled, and held again")
    after = _counted(changed(after), number)
    return marked(after) if after.store.marked else after


def broken(world: World) -> str:
    """The promise that this moment breaks."""
    if world.wrong:
        return world.wrong
    held = [hand.message for hand in world.hands if hand] + [each.message for each in world.wire]
    for number, message in enumerate(world.messages):
        nowhere = message.at == GONE and number not in held
        if nowhere and not message.entries and not message.ended:
            return "lost"
    return ""


class Found(NamedTuple):
    """What is wrong first, and a shortest way there; how much was seen by then."""

    wrong: str
    way: list[str]
    worlds: int
    answers: set[str]


def search(scenario: Scenario, protocol: Taking, *, until: str = "") -> Found:
    """Look at every world there is, or until something is wrong.

    Args:
        until: What has to be wrong; anything by default.
    """
    limits = (scenario.faults, scenario.cancels, scenario.moves)
    first = World((Message(),) * scenario.messages, Store(), *limits)
    came_from: dict[World, Step | None] = {first: None}
    queue, answers = deque(came_from), set()
    while queue:
        world = queue.popleft()
        for name, then in steps(world, scenario, protocol):
            after = without_vain_requests(then)
            if after in came_from:
                continue
            came_from[after] = (name, world)
            answers.add(name.partition(": ")[2].partition(",")[0])
            wrong = broken(after)
            if wrong and until in wrong:
                return Found(wrong, way_to(after, came_from), len(came_from), answers)
            if not wrong:
                queue.append(after)
    return Found("", [], len(came_from), answers - {""})
