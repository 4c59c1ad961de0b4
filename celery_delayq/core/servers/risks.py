"""How a Redis may lose waiting tasks or refuse new ones, and what to do about it.

    Facts ----> role, eviction, persistence, memory ---> lines: ok, a warning, or an error

A worker logs the warnings when it starts; the doctor prints all lines. A fact that the server does
not report has no line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ..logs import counted
from .alone import SENTINEL
from .connection import Connection
from .facts import Facts

Level = Literal["ok", "warning", "error"]
OK: Level = "ok"
WARNING: Level = "warning"
ERROR: Level = "error"

TASK_BYTES = 460  # bytes of a task without its arguments; see tests/lab/benchmarks
LEFT_BYTES = 120  # bytes of a task that left, while the store remembers it
NEARLY_FULL = 0.9  # of maxmemory
FULL = 0.99  # of maxmemory, or
FEW = 1000  # with room for fewer tasks it is full: buffers may take the rest
BEHIND = 10  # seconds that a replica may lag


@dataclass(frozen=True)
class Line:
    """The finding about one requirement.

    Attributes:
        name: The requirement, such as ``"eviction"``.
        level: ``"ok"``; ``"warning"``: tasks may be lost or late one day; ``"error"``: it does not
            work, or tasks will be lost.
        found: The finding, and its effect.
        advice: The remedy; empty if it is ok.
    """

    name: str
    level: Level
    found: str
    advice: str = ""


def risks(connection: Connection) -> list[Line]:
    """Return warnings and errors about a Redis, as far as it reports the facts; takes milliseconds.

    Raises:
        StoreUnavailable: no answer came in time.
    """
    server = Facts.ask(connection)
    found = [*role(server), *eviction(server), *persistence(server), *memory(server)]
    return [line for line in found if line.level != OK]


def role(server: Facts) -> Iterator[Line]:
    """Check that it is a master, and how far its replicas are behind."""
    if server.hello.get("mode") == "sentinel":
        yield Line("replication", ERROR, SENTINEL, "point delayq_url at the Redis itself")
    elif server.is_replica:
        info = server.info
        of = f" of {info['master_host']}:{info.get('master_port')}" if "master_host" in info else ""
        yield Line(
            "replication", ERROR,
            f"the store's Redis is a replica{of}: it refuses writes, so nothing can be scheduled "
            "or delivered",
            "point delayq_url, or broker_url, at the master",
        )  # fmt: skip
    elif server.is_replica is False and server.info:
        yield from _replicas(server)


def _replicas(server: Facts) -> Iterator[Line]:
    wanted = server.config.get("min-replicas-to-write", "0")
    good = server.info.get("min_slaves_good_slaves")
    if good is not None and wanted.isdigit() and int(good) < int(wanted):
        yield Line(
            "replication", ERROR,
            f"the store's Redis refuses writes, as {good} of its replicas keep up, and its "
            f"min-replicas-to-write is {wanted}",
            "bring its replicas back, or lower min-replicas-to-write",
        )  # fmt: skip
    slow = [replica for replica in server.replicas if _is_behind(replica)]
    for behind in slow:
        where = f"{behind.get('ip')}:{behind.get('port')}"
        yield Line(
            "replication", WARNING,
            f"the replica {where} of the store's Redis does not keep up (state "
            f"{behind.get('state')}, {behind.get('lag')} s behind): a failover to it loses the "
            "changes that it lacks",
            "check that replica's log and its link to the master",
        )  # fmt: skip
    count = len(server.replicas)
    if not slow and count:
        what = "a replica that keeps" if count == 1 else f"{count} replicas that keep"
        yield Line("replication", OK, f"a master, with {what} up; a failover loses the "
                   "changes that the promoted one lacks")  # fmt: skip
    elif not count:
        yield Line("replication", OK, "a master without replicas")


def _is_behind(replica: Mapping[str, str]) -> bool:
    lag = replica.get("lag", "0")
    return replica.get("state") != "online" or (lag.isdigit() and int(lag) > BEHIND)


def eviction(server: Facts) -> Iterator[Line]:
    """Check whether it deletes waiting tasks to make room."""
    policy, named = server.policy, f"its maxmemory-policy is {server.policy}"
    if policy is None:
        return
    if not server.deletes_tasks:
        why = "" if policy == "noeviction" else ", and waiting tasks have no time to live"
        yield Line("eviction", OK, f"no waiting task is deleted to make room: {named}{why}")
    elif server.maxmemory:
        so_far = f" ({counted(server.deleted, 'key')} deleted so far)" if server.deleted else ""
        yield Line(
            "eviction", ERROR,
            f"the store's Redis deletes waiting tasks when its memory is full{so_far}, as {named}",
            "set noeviction",
        )  # fmt: skip
    else:
        yield Line(
            "eviction", WARNING,
            f"the store's Redis will delete waiting tasks once it has a maxmemory, as "
            f"{named}",
            "set noeviction",
        )  # fmt: skip


def persistence(server: Facts) -> Iterator[Line]:
    """Check what a restart or a crash loses, and whether it can write to its disk."""
    yield from _disk(server)
    saves = server.config.get("save")
    if server.has_log:
        yield _log(server.config.get("appendfsync"))
    elif server.has_log is False and saves:
        yield Line(
            "persistence", WARNING,
            "the store's Redis loses tasks scheduled since its last snapshot if it crashes, "
            f"and delivers again those delivered since, as it has save points ({saves}) and no "
            "append-only file",
            "set appendonly yes",
        )  # fmt: skip
    elif server.has_log is False and saves is not None:
        yield Line(
            "persistence", ERROR,
            "the store's Redis loses waiting tasks when it restarts, as it has neither an "
            "append-only file nor save points",
            "set appendonly yes",
        )  # fmt: skip


def _log(synced: str | None) -> Line:
    again = "tasks scheduled then are lost, tasks delivered then are delivered again"
    if synced == "always":
        found = "with appendfsync always a crash loses nothing that was acknowledged"
    elif synced == "everysec":
        found = (
            "with appendfsync everysec a crash of the machine may lose the last second or two, as "
            f"may a kill while the disk is slow: {again}"
        )
    elif synced is None:
        found = "the store's Redis has an append-only file, and does not report how often it syncs"
    else:
        found = (
            f"the store's Redis may lose the last half minute when its machine crashes, as its "
            f"appendfsync is {synced}: {again}"
        )
        return Line("persistence", WARNING, found, "set appendfsync everysec")
    return Line("persistence", OK, found)


def _disk(server: Facts) -> Iterator[Line]:
    info, config = server.info, server.config
    advice = "check its log: its disk may be full or not writable, or memory too short for a fork"
    if info.get("aof_last_write_status") == "err":
        yield Line(
            "disk", ERROR,
            "the store's Redis refuses writes, as it could not write to its append-only file",
            advice,
        )  # fmt: skip
    if info.get("rdb_last_bgsave_status") == "err":
        # Redis then refuses writes if it has save points, unless its configuration allows them.
        stops = config.get("stop-writes-on-bgsave-error") != "no" and config.get("save") != ""
        does = "refuses writes, as it" if stops else "keeps older data than it should: it"
        yield Line(
            "disk", ERROR if stops else WARNING,
            f"the store's Redis {does} could not save its last snapshot",
            advice,
        )  # fmt: skip
    if info.get("aof_last_bgrewrite_status") == "err":
        yield Line(
            "disk", WARNING,
            "the store's Redis could not rewrite its append-only file, which grows until its disk "
            "is full",
            advice,
        )  # fmt: skip


def memory(server: Facts, task_bytes: int = TASK_BYTES, by: str = "at") -> Iterator[Line]:
    """Check how much memory is left, and for how many more tasks.

    Args:
        server: The facts about the server.
        task_bytes: Bytes that a task takes.
        by: The words before that number in the sentence: its source.
    """
    used, most = server.used, server.maxmemory
    if used is None or most is None:
        return
    each = f"{by} {task_bytes} bytes each"
    if not most:
        yield Line("memory", OK, f"{_size(used)} are used, and there is no maxmemory; a million "
                   f"more tasks take {_size(task_bytes * 1_000_000)}, {each}")  # fmt: skip
        return
    share, left = f"{_size(used)} of {_size(most)}", max(0, most - used)
    then = _when_full(server)
    if left < min(FEW * task_bytes, (1 - FULL) * most):
        yield Line(
            "memory", ERROR,
            f"the store's Redis is full ({share} are used), so {then}",
            "raise maxmemory, or delete data that you do not need",
        )  # fmt: skip
    elif used > NEARLY_FULL * most:
        yield Line(
            "memory", WARNING,
            f"the store's Redis is nearly full ({share} are used), and has room for some "
            f"{left // task_bytes:,} more tasks, {each}; then {then}",
            "raise maxmemory, or delete data that you do not need",
        )  # fmt: skip
    else:
        yield Line("memory", OK, f"{share} are used; room for some {left // task_bytes:,} more "
                   f"tasks, {each}")  # fmt: skip


def remembered(server: Facts, tasks: int) -> Iterator[Line]:
    """Warn if Redis has no room for as many tasks that left as the store may remember.

    Args:
        server: The facts about the server.
        tasks: How many a generation of its shards has; there are two.
    """
    count, most = 2 * tasks, server.maxmemory
    needed = count * LEFT_BYTES
    if most and needed > most:
        yield Line(
            "memory", WARNING,
            f"with this delayq_remember, {count:,} tasks that left may take {_size(needed)}, more "
            f"than this Redis has: {_size(most)}; when it is full, {_when_full(server)}",
            "set a smaller number of tasks, or raise maxmemory",
        )  # fmt: skip


def _when_full(server: Facts) -> str:
    return "waiting tasks are deleted" if server.deletes_tasks else "nothing can be scheduled"


def _size(size: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size / 1e3:.0f} kB"
