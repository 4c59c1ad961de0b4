"""Faults of a master, and when the clients of the group can work again."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.sentinel.work import Caller
from tests.support.sentinels import NAME, Node, SentinelGroup
from tests.support.waiting import eventually

FOUND = 2.0  # seconds after an election in which every client has to be at work there
CALM = 60_000  # ms: longer than a busy machine lets a node wait for its processor


@dataclass
class Course:
    """The course of a fault; times by the monotonic clock.

    ``caught_up``: the replica has all writes acknowledged before. ``gone``: from then on, the old
    master acknowledged nothing. ``elected``: the first sentinel announced the new master.
    """

    old: Node
    new: Node
    caught_up: float
    elected: float
    gone: float
    lingers: bool = False

    def await_demotion(self) -> None:
        """Wait until the old master is a replica: some seconds, or ten if nothing hurries it."""
        eventually(lambda: self.old.info()["role"] == "slave", 30)
        self.gone = time.monotonic()


Fault = Callable[[SentinelGroup], Course]


def kill(group: SentinelGroup) -> Course:
    """Close all links, and refuse new ones."""
    return _inject(group, group.kill_master)


def silence(group: SentinelGroup) -> Course:
    """Keep links open, accept new ones, and send no replies."""

    def stop() -> Node:
        master = group.master
        group.silence(master)
        return master

    return _inject(group, stop)


def failover(group: SentinelGroup) -> Course:
    """``SENTINEL FAILOVER``: the old master continues until sentinels make it a replica."""
    course = _inject(group, group.failover)
    course.lingers = True
    return course


def demote(group: SentinelGroup) -> Course:
    """Make the old master a replica at once; it closes no link, and replies ``READONLY``."""
    course = _inject(group, group.failover)
    course.old.client().replicaof("127.0.0.1", course.new.port)
    course.await_demotion()
    return course


def hide(group: SentinelGroup, meanwhile: Callable[[], object] | None = None) -> Course:
    """Cut the old master off from sentinels and replicas, but not from its clients.

    *meanwhile* runs before the sentinels regard it as down.
    """

    def split() -> Node:
        master = group.master
        group.wait_with(CALM)
        group.hide(master)
        if meanwhile is not None:
            meanwhile()
        return master

    return _inject(group, split)


def _inject(group: SentinelGroup, fault) -> Course:
    caught_up = time.monotonic()
    group.catch_up()
    before = len(group.switches)
    old = fault()
    gone = time.monotonic()
    new, elected = await_election(group, old, before)
    # Sentinels announce the new master; this process checks that it replies.
    eventually(lambda: new.info()["role"] == "master")
    return Course(old, new, caught_up, elected, gone)


def await_election(group: SentinelGroup, old: Node, since: int = 0) -> tuple[Node, float]:
    """Let the sentinels be quick to take *old* for down, and no other node; see `elected`."""
    _wait_with(group, group.down_after)
    try:
        return group.elected(old, since)
    finally:
        _wait_with(group, CALM)


def _wait_with(group: SentinelGroup, down_after: int) -> None:
    for one in group._asked():  # a silent sentinel would not answer
        one.ask("SET", NAME, "down-after-milliseconds", down_after)


def kept(caller: Caller, course: Course) -> tuple[set[str], set[str]]:
    """Tasks of a caller that have to be there, and those that must not.

    Replication keeps a call if it had caught up, or if the old master took no more writes. A task
    that the caller tried to cancel may be there or not.
    """
    scheduled, cancelled = (
        {
            call.task_id
            for call in caller.done(what)
            if call.ended < course.caught_up or call.began > course.gone
        }
        for what in ("schedule", "cancel")
    )
    return scheduled - {call.task_id for call in caller.calls if call.what == "cancel"}, cancelled
