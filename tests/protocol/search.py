"""Every order in which one entry, two scanners, a cancel, a reschedule and two faults can meet.

world  = the entry in the store + what each scanner holds + what the broker got + the answers
search = all worlds that can be reached from the first, breadth first, so that the way to a
         fault that is shown is a shortest one
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tests.protocol.model import GONE, LEASED, LOST, Batch, Entry, Fenced

SCANNERS = (0, 1)
FAULTS = 2
REMOVES = ("done", "uncertain")
MANY = 2  # deliveries beyond this many are all the same


@dataclass(frozen=True)
class World:
    """One moment."""

    entry: Entry = field(default_factory=Entry)
    batches: tuple[Batch | None, ...] = (None, None)
    delivered: tuple[int, ...] = (0, 0)  # copies at the broker, by version
    unmarked: int = 0  # those that are not marked as a possible duplicate
    cancel: str = ""
    reschedule: str = ""
    faults: int = FAULTS

    @property
    def answers(self) -> tuple[str, str]:
        return self.cancel, self.reschedule

    def holding(self, who: int, batch: Batch | None, **changes) -> "World":
        batches = tuple(batch if each == who else self.batches[each] for each in SCANNERS)
        return replace(self, batches=batches, **changes)

    def with_copy(self, batch: Batch) -> "World":
        delivered = tuple(
            min(MANY, count + (version == batch.version))
            for version, count in enumerate(self.delivered)
        )
        return replace(
            self, delivered=delivered, unmarked=min(MANY, self.unmarked + (not batch.uncertain))
        )


Step = tuple[str, World]


def steps(world: World, protocol: Fenced) -> Iterator[Step]:
    """The possible next steps."""
    for who in SCANNERS:
        if world.batches[who] is None:
            entry, batch = protocol.claim(world.entry, who)
            if batch:
                yield f"{who} claims", world.holding(who, batch, entry=entry)
        else:
            yield from _go_on(world, protocol, who)
    entry, taken = protocol.reclaim(world.entry)
    if taken:
        yield "reclaim", replace(world, entry=entry)
    entry, taken = protocol.retry(world.entry)
    if taken:
        yield "retry", replace(world, entry=entry)
    if not world.cancel:
        entry, answer = protocol.cancel(world.entry)
        yield f"cancel: {answer}", replace(world, entry=entry, cancel=answer)
    if not world.reschedule:
        entry, answer = protocol.reschedule(world.entry)
        yield f"reschedule: {answer}", replace(world, entry=entry, reschedule=answer)
    yield from _lease_runs_out(world, protocol)


def _go_on(world: World, protocol: Fenced, who: int) -> Iterator[Step]:
    batch = world.batches[who]
    if batch.outcome == "not tried":
        yield f"{who} publishes", _tried(world.with_copy(batch), who, "sent")
        yield f"{who} stops", _released(world, protocol, who, "unsent")
    elif batch.outcome == "sent":
        entry, _ = protocol.ack(world.entry, who)
        yield f"{who} acks", world.holding(who, None, entry=entry)
    else:
        yield f"{who} gives back", _released(world, protocol, who, batch.outcome)
    if not world.faults:
        return
    faulty = replace(world, faults=world.faults - 1)
    if batch.outcome == "not tried":
        yield f"{who} publishes, no answer", _tried(faulty.with_copy(batch), who, "unknown")
        yield f"{who} fails, no answer", _tried(faulty, who, "unknown")
        yield f"{who} is refused", _tried(faulty, who, "refused")
    entry = world.entry
    forgotten = entry._replace(holder=LOST) if entry.holder == who else entry
    yield f"{who} dies", faulty.holding(who, None, entry=forgotten)


def _tried(world: World, who: int, outcome: str) -> World:
    return world.holding(who, world.batches[who]._replace(outcome=outcome))


def _released(world: World, protocol: Fenced, who: int, verdict: str) -> World:
    entry, _ = protocol.nack(world.entry, who, verdict)
    return world.holding(who, None, entry=entry)


def _lease_runs_out(world: World, protocol: Fenced) -> Iterator[Step]:
    # Under a live scanner that is a fault: it was paused, even between its look at the clock and
    # the publish. Under a dead one it is only a matter of time.
    costs = world.entry.holder != LOST
    if world.entry.place == LEASED and not world.entry.expired and world.faults >= costs:
        entry = protocol.run_out(world.entry)
        yield "lease runs out", replace(world, entry=entry, faults=world.faults - costs)


def broken(world: World) -> Iterator[str]:
    """The promises that this moment breaks."""
    copies = sum(world.delivered)
    latest = 1 if world.reschedule in REMOVES else 0
    promises = {
        "duplicate without a fault": world.faults == FAULTS and copies > 1,
        "uncertain without a fault": world.faults == FAULTS and "uncertain" in world.answers,
        "duplicate without a mark": world.unmarked > 1,
        "cancelled, yet delivered": world.cancel == "done" and copies,
        "moved, yet delivered": world.reschedule == "done" and world.delivered[0],
        "said handed over, was not": "handed_over" in world.answers and not copies,
        "loss": _over(world) and world.cancel not in REMOVES and not world.delivered[latest],
    }
    yield from (promise for promise, is_broken in promises.items() if is_broken)


def _over(world: World) -> bool:
    return world.entry.place == GONE and not any(world.batches)


@dataclass
class Found:
    """The result of a search: broken promises with a shortest way to each, and all answers."""

    ways: dict[str, list[str]] = field(default_factory=dict)
    worlds: int = 0
    answers: set[tuple[str, str]] = field(default_factory=set)


def search(protocol: Fenced) -> Found:
    """Visit every reachable world."""
    first, found = World(), Found()
    came_from: dict[World, Step | None] = {first: None}
    leads_back: dict[World, list[World]] = {}
    queue = deque([first])
    while queue:
        world = queue.popleft()
        for promise in broken(world):
            found.ways.setdefault(promise, way_to(world, came_from))
        for name, after in steps(world, protocol):
            leads_back.setdefault(after, []).append(world)
            if after not in came_from:
                came_from[after] = (name, world)
                queue.append(after)
    for world in came_from.keys() - _can_end(leads_back):
        found.ways.setdefault("stuck", way_to(world, came_from))
    found.worlds = len(came_from)
    found.answers = {("cancel", world.cancel) for world in came_from} | {
        ("reschedule", world.reschedule) for world in came_from
    }
    return found


def _can_end(leads_back: dict[World, list[World]]) -> set[World]:
    """The worlds from which the entry can still leave the store, whatever happened before."""
    ends = {world for world in leads_back if _over(world)}
    queue = deque(ends)
    while queue:
        for before in leads_back.get(queue.popleft(), ()):
            if before not in ends:
                ends.add(before)
                queue.append(before)
    return ends


def way_to(world, came_from) -> list[str]:
    """The names of the steps that led there first."""
    way: list[str] = []
    while step := came_from[world]:
        name, world = step
        way.insert(0, name)
    return way
