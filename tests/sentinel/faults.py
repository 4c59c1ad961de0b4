"""What happens to a master, and when the clients of the group can be at work again."""

import time
from dataclasses import dataclass

from tests.sentinel.work import Pulse
from tests.support.sentinels import Node, SentinelGroup
from tests.support.waiting import eventually

FOUND = 2.0  # seconds in which a client that can know of the new master has to be at work there


@dataclass
class Course:
    """What came of a fault; times by the monotonic clock.

    ``caught_up``: the replica has what was acknowledged before. ``gone``: from when on the old
    master acknowledged nothing. ``known``: from when on a client could know of the new one.
    """

    old: Node
    new: Node
    caught_up: float
    began: float
    elected: float
    gone: float
    known: float


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
    eventually(lambda: course.old.info()["role"] == "slave", 30)
    course.gone = course.known = time.monotonic()
    return course


def demote(group: SentinelGroup) -> Course:
    """The old master becomes a replica at once, and closes no link: it answers ``READONLY``."""
    course = _inject(group, group.failover)
    course.old.client().replicaof("127.0.0.1", course.new.port)
    course.gone = course.known = time.monotonic()
    return course


def _inject(group: SentinelGroup, fault) -> Course:
    caught_up = time.monotonic()
    group.catch_up()
    before, began = len(group.switches), time.monotonic()
    old = fault()
    gone = time.monotonic()
    new, elected = group.elected(old, before)
    # Sentinels tell of one that has taken over; that it answers is seen by this very process.
    eventually(lambda: new.info()["role"] == "master", 20)
    return Course(old, new, caught_up, began, elected, gone, elected)


def assert_soon(pulse: Pulse, done: float, known: float, within: float = FOUND) -> None:
    """That something was *done* within so many seconds in which the machine was awake."""
    took = done - known
    assert took - pulse.lost(known) < within, f"{took:.2f} s"
