"""Scanners that sleep over two shards, and the messages that wake them: every order of events.

A script that schedules something earlier than the head of its shard publishes a message to the one
scanner that watches this shard, or to all scanners if that one is not subscribed. A subscription
promises nothing: a message may be lost, or its reader may die. So no scanner sleeps longer than the
safety interval, and each one that wakes looks at every shard.

Time passes only when no living scanner has anything to do. An entry that is overdue by more than
the safety interval is then one that may wait for ever.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.protocol.search import way_to

SAFETY = 3  # ticks that a scanner sleeps at most
ALIVE = SAFETY + 1  # ticks for which the watcher counts as alive after it looked
GRACE = 1  # ticks that the others leave to the watcher
NEVER = 100
FAULTS = 2
DUES = (0, 2)  # ticks until a scheduled entry is due
OVERDUE = -SAFETY - 1
SHARDS = (0, 1)


class Scanner(NamedTuple):
    """A scanner that sleeps until its alarm (``shard`` is None), or looks at that shard next."""

    shard: int | None = 0
    alarm: int = SAFETY
    mail: bool = False
    lives: bool = True


@dataclass(frozen=True)
class Habits:
    """The habits of scanners. These are the right ones; `test_waking.py` has others."""

    safety: bool = True  # sleeps no longer than the safety interval
    keeps_mail: bool = True  # a message that comes while it looks makes it look again
    all_shards: bool = True  # looks at every shard when it wakes, and not at the first one only


class World(NamedTuple):
    """One moment, at 0 o'clock."""

    heads: tuple[int | None, ...] = (None, None)  # of each shard, ticks until it is due
    scanners: tuple[Scanner, ...] = (Scanner(), Scanner())
    watchers: tuple[int, ...] = (0, 0)  # of each shard
    beats: tuple[int, ...] = (ALIVE, ALIVE)  # ticks for which they still count as alive
    to_come: int = 2  # entries
    faults: int = FAULTS

    def with_scanner(self, who: int, **changes) -> "World":
        scanner = self.scanners[who]._replace(**changes)
        return self._replace(scanners=(*self.scanners[:who], scanner, *self.scanners[who + 1 :]))


Step = tuple[str, World]


def steps(world: World, habits: Habits) -> Iterator[Step]:
    """The possible next steps."""
    busy = False
    for who, scanner in enumerate(world.scanners):
        if not scanner.lives:
            continue
        if scanner.shard is not None:
            yield f"{who} looks at shard {scanner.shard}", _looks(world, habits, who)
            busy = True
        elif scanner.mail or scanner.alarm <= 0:
            yield f"{who} wakes", world.with_scanner(who, shard=0, alarm=SAFETY, mail=False)
            busy = True
        if world.faults:
            fewer = world._replace(faults=world.faults - 1)
            yield f"{who} dies", fewer.with_scanner(who, lives=False, shard=None, mail=False)
    if world.to_come:
        yield from _scheduled(world)
    if not busy:
        yield "time passes", _later(world)


def _scheduled(world: World) -> Iterator[Step]:
    for shard in SHARDS:
        head, watcher = world.heads[shard], world.watchers[shard]
        for due in DUES:
            name = f"scheduled in shard {shard}, due in {due}"
            after = world._replace(to_come=world.to_come - 1)
            if head is not None and head <= due:
                yield name, after
                continue
            after = after._replace(heads=_with(world.heads, shard, due))
            yield name, _told(after, watcher)
            if world.faults:
                yield f"{name}, the message is lost", after._replace(faults=world.faults - 1)


def _told(world: World, watcher: int) -> World:
    if world.scanners[watcher].lives:
        return world.with_scanner(watcher, mail=True)
    return world._replace(scanners=tuple(each._replace(mail=each.lives) for each in world.scanners))


def _looks(world: World, habits: Habits, who: int) -> World:
    alarm, shard = world.scanners[who].alarm, world.scanners[who].shard
    if who == world.watchers[shard] or not world.beats[shard]:
        watchers, beats = _with(world.watchers, shard, who), _with(world.beats, shard, ALIVE)
        world = world._replace(watchers=watchers, beats=beats)
    head = world.heads[shard]
    if head is not None and head > 0:
        alarm = min(alarm, head if who == world.watchers[shard] else head + GRACE)
    else:  # due entries are handed over
        world = world._replace(heads=_with(world.heads, shard, None))
    if shard < SHARDS[-1] and habits.all_shards:
        return world.with_scanner(who, shard=shard + 1, alarm=alarm)
    if not habits.safety and alarm == SAFETY:
        alarm = NEVER
    mail = world.scanners[who].mail and habits.keeps_mail
    return world.with_scanner(who, shard=None, alarm=alarm, mail=mail)


def _with(values: tuple, index: int, value: int | None) -> tuple:
    return (*values[:index], value, *values[index + 1 :])


def _later(world: World) -> World:
    return world._replace(
        heads=tuple(head if head is None else max(OVERDUE, head - 1) for head in world.heads),
        scanners=tuple(
            each._replace(alarm=each.alarm - 1) if each.lives else each for each in world.scanners
        ),
        beats=tuple(max(0, beat - 1) for beat in world.beats),
    )


def broken(world: World) -> str:
    """The promise that this moment breaks."""
    heads = [head for head in world.heads if head is not None]
    if not heads or not any(each.lives for each in world.scanners):
        return ""
    if min(heads) <= OVERDUE:
        return "waits for ever"
    if min(heads) < 0 and world.faults == FAULTS:
        return "late without a fault"
    return ""


class Found(NamedTuple):
    wrong: str
    way: list[str]
    worlds: int


def search(habits: Habits, until: str = "") -> Found:
    """Visit every reachable world, or stop at the first error."""
    came_from: dict[World, Step | None] = {World(): None}
    queue = deque(came_from)
    while queue:
        world = queue.popleft()
        for name, after in steps(world, habits):
            if after in came_from:
                continue
            came_from[after] = (name, world)
            wrong = broken(after)
            if wrong and until in wrong:
                return Found(wrong, way_to(after, came_from), len(came_from))
            queue.append(after)
    return Found("", [], len(came_from))
