"""Every order of events under one key: two clients, some ids, scanners, and an unreliable network.

What `network.py` does for one id, for a few of them. That a lease lets nobody but its holder
confirm or give back is searched there; so here, a scanner's step happens or does not.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from tests.protocol.calls import EFFECTS, NEVER, NOTHING_THERE, NOW, REFUSALS, Request
from tests.protocol.keys import CONFLICT, DEAD, KEPT, KEY, Item, Keyed, Store, call_of
from tests.protocol.model import LEASED, WAITING
from tests.protocol.network import Found, ended, found, issued_anew, later, sent, waits
from tests.protocol.search import way_to
from tests.protocol.world import MANY, Client, Scenario, Step, World
from tests.protocol.world import Call as Came


@dataclass(frozen=True)
class Keys(Scenario):
    """Who calls what under the key. With ``held``, the last call's entry has it at the start."""

    buries: bool = False  # a scanner may set aside what it has leased


def beginnings(scenario: Keys) -> list[World]:
    count = len(scenario.kinds)
    store = Store((None,) * count, (NEVER,) * count)
    calls = (Came(),) * count
    if scenario.held:
        store = store.with_item(count - 1, Item(count - 1, changed=NEVER))
        store = store._replace(holder=count - 1)
        calls = (*calls[:-1], Came(told="held", first="held", effects=1))
    return [
        World(
            store,
            tuple(Client(lag, own[0]) for lag, own in zip(lags, scenario.calls, strict=False)),
            calls,
        )
        for lags in scenario.lags
    ]


def steps(world: World, scenario: Keys, protocol: Keyed) -> Iterator[Step]:
    """Whatever can happen next."""
    for who, client in enumerate(world.clients):
        if client.end is not None:
            yield from waits(world, scenario, protocol, who)
        elif client.call in scenario.calls[who]:
            kind = scenario.kinds[client.call]
            yield f"{'AB'[who]} sends {kind}", sent(world, who, kind)
    for request in world.wire:
        yield from _arrives(world, scenario, protocol, request)
    for id_, item in enumerate(world.store.items):
        if item and item.place != DEAD:
            yield from _scanned(world, scenario, protocol, id_, item)
    yield "time passes", _later(world, protocol)


def _scanned(world: World, scenario: Keys, protocol: Keyed, id_: int, item: Item) -> Iterator[Step]:
    store = world.store
    leaves = world.with_call(item.owner, copies=min(MANY, world.calls[item.owner].copies + 1))
    if not scenario.claims:
        yield f"{id_} is handed over", leaves._replace(store=protocol.hand_over(store, id_))
    elif item.place == LEASED:
        yield f"{id_} is confirmed", leaves._replace(store=protocol.hand_over(store, id_))
        yield f"{id_} comes back", _back(world, protocol.come_back(store, id_), id_)
        if scenario.buries:
            yield f"{id_} is set aside", world._replace(store=protocol.bury(store, id_))
    elif world.claimed < scenario.claims:
        claimed = world._replace(claimed=world.claimed + 1)
        yield f"{id_} is claimed", claimed._replace(store=protocol.claim(store, id_))


def _back(world: World, store: Store, id_: int) -> World:
    item = store.items[id_]
    others = (each for other, each in enumerate(store.items) if other != id_)
    back = item._replace(back=item.keyed and any(map(_waits_under_it, others)))
    return world._replace(store=store.with_item(id_, back))


def _waits_under_it(item: Item | None) -> bool:
    return bool(item) and item.keyed and item.place == WAITING and not item.back


def _arrives(world: World, scenario: Keys, protocol: Keyed, request: Request) -> Iterator[Step]:
    store, answer = protocol.run(world.store, request)
    name = f"{request.kind} {request.call} arrives: {answer}"
    who = world.caller_of(request.call)
    if answer in REFUSALS:
        if who is not None and world.clients[who].end > NOW:
            yield name, issued_anew(world, who, request)
        return
    after = _written(world, scenario, store, request, answer)
    if after is not world:
        yield f"{name}, its reply is lost", after
    if who is not None:
        yield name, ended(after.with_client(who, lag=0), who, answer)


def _touched(before: Store, after: Store, request: Request) -> set[int]:
    """The ids, and the key, that a step was about."""
    call = call_of(request)
    pairs = enumerate(zip(before.items, after.items, strict=True))
    about = {id_ for id_, (old, new) in pairs if old != new}
    if call.by_key or about & {before.holder, after.holder}:
        about.add(KEY)
    return about if call.id is None else about | {call.id}


def _asked(kind: str, number: int) -> set[int]:
    call = call_of(Request(number, kind, NOW, NOW))
    about = {KEY} if call.by_key else set()
    return about if call.id is None else about | {call.id}


def _written(world: World, scenario: Keys, store: Store, request: Request, answer: str) -> World:
    """The world after a script, with what it is to remember of that for `broken`."""
    before, call = world.store, world.calls[request.call]
    took = store.items != before.items
    after = world if store is before else world._replace(store=store)
    if not call.first:
        if took or answer in (*NOTHING_THERE, KEPT):
            touched = {KEY} if answer == KEPT else _touched(before, store, request)
            for older in call.after:
                if touched & _asked(scenario.kinds[older], older):
                    after = after.with_call(older, overtaken=request.kind)
        after = after.with_call(request.call, first=answer, after=frozenset())
        after = _answered(after, before, request, answer)
    if not took:
        return after
    if call.first and call.first not in EFFECTS:
        after = after._replace(wrong="took effect after an answer that said that it had not")
    if call.overtaken:
        after = after._replace(wrong=f"an older {request.kind} after a newer {call.overtaken}")
    return _changed(after, before, request)


def _answered(world: World, before: Store, request: Request, answer: str) -> World:
    """What was said of what is in the way; and REVOKED for an id that nothing is kept under."""
    if answer not in {KEPT, CONFLICT}:
        return world
    own = before.items[call_of(request).id]
    if not own and not any(map(_waits_under_it, before.items)):
        return world._replace(wrong=f"{answer}, with nothing in the way")
    return world if answer == CONFLICT or own else _revoked(world, request.call)


def _revoked(world: World, call: int) -> World:
    return world.with_call(call, revoked=min(MANY, world.calls[call].revoked + 1))


def _changed(world: World, before: Store, request: Request) -> World:
    verb = call_of(request).verb
    for id_, (old, new) in enumerate(zip(before.items, world.store.items, strict=True)):
        if old == new:
            continue
        if verb == "cancel":
            world = world.with_call(old.owner, cancelled=True)
        elif verb == "move" and (old.back or old.place == DEAD):
            world = _back(world, world.store, id_)
        elif verb != "move" and old:
            world = _revoked(world, old.owner)
    effects = world.calls[request.call].effects
    return world.with_call(request.call, effects=min(MANY, effects + 1))


def _later(world: World, protocol: Keyed) -> World:
    return later(world, protocol, {item.owner for item in world.store.items if item})


def broken(world: World, scenario: Keys) -> Iterator[str]:
    """The promises that this moment breaks."""
    if world.wrong:
        yield world.wrong
    store, held = world.store, {item.owner for item in world.store.items if item}
    for id_, item in enumerate(store.items):
        if _waits_under_it(item) and store.holder != id_:
            yield "waits, and does not hold its key"
    if store.holder is not None and not store.items[store.holder]:
        yield "what has left holds the key"
    for number, (kind, call) in enumerate(zip(scenario.kinds, world.calls, strict=True)):
        gone = call.cancelled or call.revoked
        if gone and (call.copies or number in held):
            yield "cancelled or revoked, yet held or delivered"
        if call.copies > 1 or call.revoked > 1 or (kind.startswith("move") and call.effects > 1):
            yield "twice"
        if call.first == "held" and not gone and not call.copies and number not in held:
            yield "waits for ever"


def search(scenario: Keys, protocol: Keyed, *, until: str = "") -> Found:
    """Look at every world there is, or until something is wrong.

    Args:
        until: A part of the name of what has to be wrong; anything by default.
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
                if until in wrong:
                    return found(wrong, way_to(after, came_from), came_from, names)
            queue.append(after)
    return found("", [], came_from, names)
