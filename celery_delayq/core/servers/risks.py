"""Facts about a Redis: whether it can be a store, and how it may lose waiting tasks.

    HELLO ---> product, version, role         every user may send it    --> can it be a store?
    INFO ----> memory, persistence, replicas  a hosted Redis may refuse --+-> lines: ok, a warning,
    CONFIG --> save points, how often it syncs   most hosted ones refuse -'          or an error

A fact that it does not report is ``None``, never a guess, and has no line. A worker logs the
warnings when it starts; the doctor prints all lines.

A node of a Redis Cluster can be a store if it serves the store's slot; the first read of the
store's keys shows whether it does. It can be the broker too only if the queues' lists are in that
slot, so that a script can push to them: if the broker's ``global_keyprefix`` begins with the
store's hash tag. Then delivery is direct, and the two must be one; the store's id, read by the
broker's URL, proves it. Without the tag they must not be in one Cluster, because the broker cannot
be used there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..errors import StoreError, StoreUnavailable
from ..text import counted, plain
from .connection import NO_BROKER, Connection, packed, said_of
from .endpoint import Endpoint, Server

SETTINGS = ("save", "appendfsync", "stop-writes-on-bgsave-error", "min-replicas-to-write")
_LINE = re.compile(r"^(\w+):([^\r\n]*)", re.MULTILINE)


def ask(connection: Connection, *command: bytes | str | int) -> Any:
    """Return Redis's answer, or ``None`` if Redis, or a proxy, refuses this user the command.

    Raises:
        StoreUnavailable: no answer came in time.
    """
    try:
        return connection.execute("doctor", packed(command))
    except StoreUnavailable:
        # A proxy may close the connection on a command that it does not allow.
        _see_it_is_there(connection)
    except StoreError:
        pass
    return None


def _see_it_is_there(connection: Connection) -> None:
    try:
        connection.execute("doctor", packed(["PING"]))
    except StoreUnavailable:
        raise
    except StoreError:
        pass  # this is an answer too


@dataclass(frozen=True)
class Facts:
    """The facts that a Redis reports about itself.

    Attributes:
        hello: Its answer to HELLO: server, version, mode, role.
        info: The fields of INFO; empty if it refuses.
        config: Those of the :data:`SETTINGS` that it reports.
    """

    hello: Mapping[str, str]
    info: Mapping[str, str]
    config: Mapping[str, str]

    @classmethod
    def ask(cls, connection: Connection) -> Facts:
        """Read the facts; six commands at most.

        Raises:
            StoreUnavailable: no answer came in time.
        """
        hello = ask(connection, "HELLO", 2) or []
        return cls(_pairs(hello), cls.of_info(connection).info, _config(connection))

    @classmethod
    def of_info(cls, connection: Connection) -> Facts:
        """Read the facts that INFO has: one command."""
        return cls({}, dict(_LINE.findall(_text(ask(connection, "INFO") or b""))), {})

    @property
    def version(self) -> str:
        """Its product and version: ``Redis 7.0.15``; empty if both are unknown."""
        version = self.hello.get("version") or self.info.get("redis_version", "")
        return f"{self.hello.get('server', 'redis').capitalize()} {version}" if version else ""

    @property
    def is_replica(self) -> bool | None:
        """Whether it is a replica."""
        role = self.info.get("role") or self.hello.get("role")
        return None if role is None else role not in ("master", "primary")

    @property
    def policy(self) -> str | None:
        """Its ``maxmemory-policy``."""
        return self.info.get("maxmemory_policy")

    @property
    def deletes_tasks(self) -> bool:
        """Whether its policy deletes waiting tasks when it is full.

        The other policies delete only keys with a time to live, which the store's keys do not have.
        """
        return (self.policy or "").startswith("allkeys-")

    @property
    def deleted(self) -> int:
        """How many keys it has deleted to make room, in all its databases; 0 if unknown."""
        return self._number("evicted_keys") or 0

    @property
    def maxmemory(self) -> int | None:
        """Bytes that it may use; 0: no limit but the machine's."""
        return self._number("maxmemory")

    @property
    def used(self) -> int | None:
        """Bytes that it uses, as far as ``maxmemory`` counts them."""
        used = self._number("used_memory")
        return None if used is None else used - (self._number("mem_not_counted_for_evict") or 0)

    @property
    def has_log(self) -> bool | None:
        """Whether it has an append-only file."""
        enabled = self.info.get("aof_enabled")
        return None if enabled is None else enabled == "1"

    @property
    def replicas(self) -> list[Mapping[str, str]]:
        """Its replicas: ip, port, state, offset, lag (in seconds)."""
        found = [text for name, text in self.info.items() if re.fullmatch(r"slave\d+", name)]
        return [dict(part.split("=", 1) for part in text.split(",") if "=" in part)
                for text in found]  # fmt: skip

    def _number(self, name: str) -> int | None:
        text = self.info.get(name, "")
        return int(text) if text.isdigit() else None


def _config(connection: Connection) -> dict[str, str]:
    directives: dict[str, str] = {}
    for name in SETTINGS:
        answer = ask(connection, "CONFIG", "GET", name)
        if answer is None:
            break  # it will not report the others either
        directives.update(_pairs(answer))
    return directives


def _pairs(flat: Any) -> dict[str, str]:
    """Return a flat reply as a dict, without values that are not text."""
    if not isinstance(flat, list):
        return {}
    pairs = zip(flat[::2], flat[1::2], strict=False)
    return {_text(name): _text(value) for name, value in pairs if isinstance(value, bytes)}


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


SENTINEL = (
    "this is a Redis Sentinel, which keeps nothing; name it by a sentinel:// URL, and its master "
    "by master_name in the transport options"
)


def check_alone(connection: Connection, step: str, until: float | None, *, direct: bool) -> None:
    """Raise if a Redis cannot be the store.

    Args:
        connection: The connection to the Redis.
        step: The step's name in errors.
        until: When to give up, by the monotonic clock.
        direct: Whether the Redis is the broker too, whose lists may be in any slot.

    Raises:
        StoreError: it is a Redis Sentinel; or such a broker, and a node of a Redis Cluster.
        StoreUnavailable: no answer came in time.
    """
    mode = mode_of(connection, step, until)
    if mode == b"sentinel":
        raise StoreError(step, SENTINEL)
    if mode == b"cluster" and direct:
        raise StoreError(step, NO_BROKER)


def mode_of(connection: Connection, step: str, until: float | None = None) -> bytes | None:
    """Return whether a Redis is ``standalone``, a ``sentinel`` or in a ``cluster``, if it says.

    Raises:
        StoreUnavailable: no answer came in time.
    """
    try:
        hello = connection.execute(step, packed(["HELLO", 2]), until)
    except StoreUnavailable:
        raise
    except StoreError:
        return None  # a proxy, or an imitation of Redis, that does not know the command
    mode: bytes | None = dict(zip(hello[::2], hello[1::2], strict=False)).get(b"mode")
    return mode


REACH = 2.0  # seconds that the broker has for an answer
_OTHER = (
    "global_keyprefix in broker_transport_options has the store's hash tag, but the broker {} does "
    "not hold this store; let broker_url name the node of the Cluster that does, or change the "
    "prefix"
)
_MOVED = (
    "the broker {} is a node of a Redis Cluster that does not serve the store's slot; let "
    "broker_url name {}, which does, or use another broker"
)
MOVES = (
    "the broker is a node of a Redis Cluster with %d masters: if the slot of its queues moves, or "
    "this node fails, Celery's workers exit or keep asking the old node"
)


def check_broker(store: Connection, broker: Server, meta: str, *, tagged: bool) -> None:
    """Raise if a broker and the store are one although they must not be, or the reverse.

    Args:
        store: The connection to the store.
        broker: The broker's Redis.
        meta: The key with the store's id.
        tagged: Whether the broker's keys have the store's hash tag.

    Raises:
        StoreUnavailable: it cannot be checked now, and has to be.
        StoreError: they are, or are not.
    """
    question = packed(["HGET", meta, "store"])
    link = Connection(broker, REACH)
    try:
        known, moved = link.execute("join", question), ""
        is_one = known is not None and known == store.execute("join", question)
    except StoreError as error:
        words = said_of(error.__cause__).split()
        is_one, moved = False, words[-1] if words[:1] == ["MOVED"] else ""
        if not moved and tagged:
            raise
        if not moved:
            return  # the relay says what is wrong with the broker
    finally:
        link.close()
    if tagged and not is_one:
        text = _MOVED if moved else _OTHER
        raise StoreError("join", text.format(broker.url, moved))
    if tagged:
        return
    # Two names of one plain Redis are none of our business: the relay delivers.
    if _leads_to(store, moved) or (is_one and mode_of(store, "join") == b"cluster"):
        raise StoreError("join", NO_BROKER)


def _leads_to(store: Connection, moved: str) -> bool:
    """Whether MOVED names the store's node."""
    (host, _, port), node = moved.rpartition(":"), store.node
    if not port or node is None:
        return False
    return Endpoint(host, int(port)).node == Endpoint(*node).node


def masters(store: Connection) -> int:
    """Return how many masters the store's Cluster has; 1 if it is none, or does not say."""
    try:
        ranges: Any = store.execute("join", packed(["CLUSTER", "SLOTS"]))
    except StoreUnavailable:
        raise
    except StoreError:
        return 1
    return len({tuple(master[:2]) for _, _, master, *_ in ranges})


Level = Literal["ok", "note", "warning", "error"]
OK: Level = "ok"
NOTE: Level = "note"
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
        level: ``"ok"``; ``"note"``: worth telling, but no problem for ``health``;
            ``"warning"``: tasks may be lost or late one day; ``"error"``: it does not work, or
            tasks will be lost.
        found: The finding, and its effect.
        advice: The remedy; empty if it is ok.
    """

    name: str
    level: Level
    found: str
    advice: str = ""

    def filled(self, *facts: object) -> Line:
        """Return the line with *facts* in place of ``{}`` and ``{0}``, each for one row."""
        shown = [plain(fact) for fact in facts]
        return replace(self, found=self.found.format(*shown), advice=self.advice.format(*shown))

    @property
    def sentence(self) -> str:
        """The finding and the advice."""
        return f"{self.found}; {self.advice}" if self.advice else self.found

    @property
    def is_problem(self) -> bool:
        """Whether it is more than a note."""
        return self.level in (WARNING, ERROR)


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
