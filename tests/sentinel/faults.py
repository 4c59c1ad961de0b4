"""What happens to a master, and when the clients of the group can be at work again."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.sentinel.work import Told
from tests.support.sentinels import NAME, Node, SentinelGroup
from tests.support.waiting import eventually

FOUND = 2.0  # seconds after an election in which every client has to be at work there


@dataclass
class Course:
    """What came of a fault; times by the monotonic clock.

    ``caught_up``: the replica has what was acknowledged before. ``gone``: from when on the old
    master acknowledged nothing. ``elected``: when the first sentinel said that there is a new one.
    """

    old: Node
    new: Node
    caught_up: float
    elected: float
    gone: float
    lingers: bool = False

    def await_demotion(self) -> None:
        """Wait until the old master is a replica: seconds, or ten where nobody hurries them."""
        eventually(lambda: self.old.info()["role"] == "slave", 30)
        self.gone = time.monotonic()


Fault = Callable[[SentinelGroup], Course]


def kill(group: SentinelGroup) -> Course:
    """Links close, and new ones are refused."""
    return _inject(group, group.kill_master)


def silence(group: SentinelGroup) -> Course:
    """Links stay open, new ones are taken, and nothing is answered."""

    def stop() -> Node:
        master = group.master
        group.silence(master)
        return master

    return _inject(group, stop)


def failover(group: SentinelGroup) -> Course:
    """``SENTINEL FAILOVER``: the old master goes on until sentinels make it a replica."""
    course = _inject(group, group.failover)
    course.lingers = True
    return course


def demote(group: SentinelGroup) -> Course:
    """The old master becomes a replica at once, and closes no link: it answers ``READONLY``."""
    course = _inject(group, group.failover)
    course.old.client().replicaof("127.0.0.1", course.new.port)
    course.await_demotion()
    return course


def hide(group: SentinelGroup, meanwhile: Callable[[], object] | None = None) -> Course:
    """Sentinels and replicas do not reach the old master; its clients do.

    Before the sentinels take it for down, *meanwhile* is done.
    """

    def split() -> Node:
        master = group.master
        group.wait_with(60_000)
        group.hide(master)
        if meanwhile is not None:
            meanwhile()
        group.wait_with(group.down_after)
        return master

    return _inject(group, split)


def move(group: SentinelGroup, late: int = 0) -> tuple[Node, Node]:
    """Another becomes the master, by hand: no sentinel says a word, and no link is closed.

    The first *late* sentinels go on naming the old one.
    """
    old, new = group.master, group.replicas[0]
    for one in group.sentinels:
        one.ask("REMOVE", NAME)
    new.client().replicaof("NO", "ONE")
    old.client().replicaof("127.0.0.1", new.port)
    for number, one in enumerate(group.sentinels):
        one.ask("MONITOR", NAME, "127.0.0.1", (old if number < late else new).port, 2)
    return old, new


def _inject(group: SentinelGroup, fault) -> Course:
    caught_up = time.monotonic()
    group.catch_up()
    before = len(group.switches)
    old = fault()
    gone = time.monotonic()
    new, elected = group.elected(old, before)
    # Sentinels tell of one that has taken over; that it answers is seen by this very process.
    eventually(lambda: new.info()["role"] == "master")
    return Course(old, new, caught_up, elected, gone)


def kept(calls: list[Told], course: Course) -> set[str]:
    """What replication has not lost: it had caught up, or the old master took nothing any more."""
    return {
        call.task_id for call in calls if call.ended < course.caught_up or call.began > course.gone
    }
