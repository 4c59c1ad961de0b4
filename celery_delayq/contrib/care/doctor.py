"""Checks an app's store and broker: a list of questions, each answered by lines.

    AT_THE_STORE   each Redis of the store; once: whether tasks are delivered (`health`)
    AT_THE_BROKER  the broker, the workers, the tasks that hold unique keys

``core/servers/risks.py`` judges a Redis, also for the warnings that a worker logs when it starts.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from ...core import clock
from ...core.errors import StoreError, StoreUnavailable
from ...core.servers import risks
from ...core.servers.connection import Connection, packed
from ...core.servers.endpoint import shown
from ...core.servers.risks import (
    ERROR,
    NOTE,
    OK,
    TASK_BYTES,
    WARNING,
    Facts,
    Level,
    Line,
    ask,
)
from ...core.services import Services
from ...core.store import KeyHolder
from ...core.store.keys import Keys
from ...core.text import counted, plain
from ...operations.health import Check, lines, quick
from ...operations.queues import (
    answers,
    delayq_answers,
    delivered,
    forlorn_stores,
    is_idle,
    other_stores,
    strangers,
    unconsumed,
    unheard_queues,
)
from .access import broker, rights, unusable
from .migration import formats

OLDEST = (6, 2)
SLOW_MS = 5.0  # a longer round trip makes callers wait
WRONG = 2.0  # seconds by which two clocks may differ
TRIPS = 20
WEIGHED = ("records", "due", "relay", "parked", "templates", "template_uses", "tags", "holders")
LEAST_WEIGHED = 100  # entries; the mean of fewer is a poor estimate
# By default Redis checks ten times a second whether a WAIT has timed out.
WAIT_MS, WAITAOF_MS = 300, 2000  # by default a file is synced every second
GRACE = 3.0  # further seconds to wait for the answer
MOST = 100  # keys of a shard that are looked at
NAMED = 10

_WRITE = "redis.call('SET', KEYS[1], '') return redis.call('UNLINK', KEYS[1])"


class Patient:
    """An app whose store and broker are checked.

    Attributes:
        services: The app's services.
        connection: A connection to the store's Redis that is not shared; in a Cluster, to a node.
        keys: The keys of the shards there.
        wrong: The names of the lines so far that are errors.
        is_away: Whether it cannot be reached.
    """

    def __init__(self, services: Services, connection: Connection | None = None) -> None:
        self.services = services
        self.wrong: set[str] = set()
        self.is_away = False
        self.connection = connection or services.connect()
        self.keys = [] if connection else [scripts.keys for scripts in services.scripts]

    @classmethod
    def each(cls, services: Services) -> list[Patient]:
        """Return the app with each Redis of its store: in a Cluster, the nodes of its shards."""
        first, found = services.connect(), dict[object, Patient]()
        for keys in (scripts.keys for scripts in services.scripts):
            connection = first.at(keys.slot)
            if connection.node is None:
                with suppress(StoreError):
                    connection.execute("doctor", packed(["PING"]))  # this looks for it
            found.setdefault(connection.node, cls(services, connection)).keys.append(keys)
        return list(found.values())

    @property
    def name(self) -> str:
        """The address of its node."""
        node = self.connection.node
        return "a node" if node is None else f"node {shown(*node)}"

    @cached_property
    def server(self) -> Facts:
        """The facts that the store's Redis reports about itself."""
        return Facts.ask(self.connection)

    @cached_property
    def trips(self) -> Trips:
        """The times of some round trips to it, and its clock."""
        return trips(self.connection)

    def why_away(self) -> Line | None:
        """Return the error if the store's Redis cannot be reached."""
        try:
            self.connection.execute("doctor", packed(["PING"]))
        except StoreUnavailable as error:
            is_group = self.services.endpoint.may_move
            return Line(
                "store", ERROR,
                f"the store {self.services.endpoint.url} cannot be reached, so nothing can be "
                f"scheduled or delivered: {plain(error.why)}",
                "check that it runs, and that the URL in delayq_url or broker_url, its "
                "password and its certificate are right"
                + "; check the transport options too" * is_group,
            )  # fmt: skip
        except StoreError:
            return None  # it is up; the line "rights" names what is missing
        return None

    def close(self) -> None:
        self.connection.close()


@dataclass(frozen=True)
class Question(Check[Patient]):
    """One requirement.

    Attributes:
        rights: The rights with which it is known; empty: no line of its name is needed.
        each: Whether each Redis of the store is asked.
        needs: All rights that it uses, if these are others.
    """

    rights: str = ""
    each: bool = True
    needs: str = ""

    def lines(self, patient: Patient) -> Iterator[Line]:
        """Yield the lines, with a warning if the answer is unknown."""
        is_known = not self.rights
        for line in self.look(patient):
            is_known = is_known or line.name == self.name
            yield line
        if not is_known:
            found = f"{self.about} is unknown: the store's Redis does not report it to this user"
            advice = f"ask its administrator, or grant {self.rights}"
            yield Line(self.name, WARNING, found, advice)


def examine(services: Services) -> Iterator[Line]:
    """Check everything, in a second or two; in some ten if the store or the broker hangs.

    If a server is down, it is tried once, and the checks that need it are skipped. This writes only
    scratch keys, and removes them in the same step.

    Raises:
        InvalidSetting: a setting is out of its range, or no Redis is configured to keep tasks in.
    """
    wrong = unusable(services)
    if wrong is not None:
        yield wrong  # all other checks need the broker
        return
    patients = Patient.each(services)
    try:
        for line in _examined(patients):
            if line.level == ERROR:
                patients[0].wrong.add(line.name)
            yield line
    finally:
        for patient in patients:
            patient.close()


def _examined(patients: list[Patient]) -> Iterator[Line]:
    first, *others = patients
    for patient in patients:
        where = f"{patient.name}: " if others else ""
        for line in _asked([one for one in AT_THE_STORE if one.each], patient):
            yield replace(line, found=where + line.found)
    if not any(each.is_away for each in patients):
        yield from _asked([one for one in AT_THE_STORE if not one.each], first)
    if not any(each.is_away for each in patients) or not first.services.store_is_broker:
        for question in AT_THE_BROKER:
            yield from _answered(question, first)


def _asked(questions: Iterable[Question], patient: Patient) -> Iterator[Line]:
    away = patient.why_away()
    for question in questions:
        if away is None:
            away = yield from _answered(question, patient)
    if away is not None:
        patient.is_away = True
        yield away


def _answered(question: Question, patient: Patient) -> Generator[Line, None, Line | None]:
    """Yield the lines; return the error if the store can no longer be reached."""
    try:
        yield from question.lines(patient)
    except StoreError as error:
        away = patient.why_away() if isinstance(error, StoreUnavailable) else None
        if away is not None:
            return away
        found = f"the store's Redis refused to answer: {plain(error.why)}"
        yield Line(question.name, ERROR, found, "check Redis's log and the rights of its user")
    return None


def _version(patient: Patient) -> Iterator[Line]:
    services, version = patient.services, patient.server.version
    where = f"{services.endpoint.url}, prefix {services.settings.prefix}"
    number = re.match(r"Redis (\d+)\.(\d+)", version)
    if number and (int(number[1]), int(number[2])) < OLDEST:
        found = f"{version} at {where}; 6.2 or later is needed"
        yield Line("store", ERROR, found, "upgrade Redis, or use Valkey")
    else:
        yield Line("store", OK, f"{version or 'a Redis of unknown version'} at {where}")


def _memory(patient: Patient) -> Iterator[Line]:
    size, settings = task_bytes(patient.connection, patient.keys), patient.services.settings
    yield from risks.memory(patient.server, size or TASK_BYTES, "at a measured" if size else "at")
    tasks = settings.remember[1] * len(patient.keys) // settings.shards
    yield from risks.remembered(patient.server, tasks)


def _replicas(patient: Patient) -> Iterator[Line]:
    wanted = patient.services.settings.wait_replicas
    if wanted is not None:
        level, found, advice = _waited_for(patient, *wanted)
        sentence = f"delayq_wait_replicas asks for {wanted[0]}{found}"
        yield Line("wait for replicas", level, sentence, advice)


def _waited_for(
    patient: Patient, count: int, seconds: float, kind: str = ""
) -> tuple[Level, str, str]:
    """Check whether scheduling can wait for the required number of replicas."""
    # For 0 replicas and 1 ms: this only shows whether the command is allowed.
    command = ("WAITAOF", 0, 0, 1) if kind else ("WAIT", 0, 1)
    if ask(patient.connection, *command) is None:
        detail = f", and this Redis, or its user, knows no {command[0]}: no call waits"
        return WARNING, detail, f"grant +{command[0].lower()}, or leave the setting out"
    there = sum(replica.get("state") == "online" for replica in patient.server.replicas)
    are = f", and {there} {'is' if there == 1 else 'are'} there"
    if patient.server.info and there < count:
        detail = f"{are}: each call waits {seconds:g} s in vain"
        return WARNING, detail, "bring the replicas back, or ask for fewer"
    had = reached(patient.connection, patient.keys[0], count, aof=bool(kind))
    if had is not None and had < count:
        detail = f", and {had} of them had a write in time: each call may wait {seconds:g} s"
        return WARNING, detail, "check the replicas' logs and their links to the master"
    return OK, are if patient.server.info else "; how many there are is unknown", ""


def _round_trip(patient: Patient) -> Iterator[Line]:
    seen = patient.trips
    found = f"{seen.median_ms:.2f} ms, and {seen.worst_ms:.2f} ms at worst, of {TRIPS} calls"
    if seen.median_ms <= SLOW_MS:
        yield Line("round trip", OK, found)
    else:
        yield Line(
            "round trip", WARNING,
            f"{found}: each call and each delivery waits that long",
            "run callers and workers nearer to the store's Redis; schedule many tasks in bulk",
        )  # fmt: skip


def _clock(patient: Patient) -> Iterator[Line]:
    least, most = patient.trips.ahead
    off = max(0.0, least) or min(0.0, most)
    if abs(off) <= WRONG:
        within = max(abs(least), abs(most))
        yield Line("clock", OK, f"Redis's and this machine's agree within {within:.3f} s")
    else:
        by = f"{abs(off):,.1f} s {'ahead of' if off > 0 else 'behind'}"
        yield Line(
            "clock", WARNING,
            f"Redis's clock is {by} this machine's: due times go by Redis's clock alone, but a "
            "caller's clock computes a captured eta, and a worker's checks expires",
            "synchronize both machines by NTP",
        )  # fmt: skip


def _broker(patient: Patient) -> Iterable[Line]:
    # These lines already say why the store's own Redis cannot reach the queues.
    if patient.services.store_is_broker and {"store", "rights"} & patient.wrong:
        return ()
    if patient.is_away:
        return broker(patient.services)
    in_cluster = patient.server.hello.get("mode") == "cluster"
    return broker(patient.services, patient.connection, in_cluster=in_cluster)


def _workers(patient: Patient) -> Iterable[Line]:
    # The names of the queues are in the store, and the workers' answers come through the broker.
    return () if {"store", "broker"} & patient.wrong else workers(patient.services)


def _held_keys(patient: Patient) -> Iterable[Line]:
    return () if {"store", "broker"} & patient.wrong else held_keys(patient.services)


def health(services: Services) -> Iterator[Line]:
    """Yield the lines of `health`, with more names and more advice."""
    advice = {check.name: check.advice for check in AT_THE_STORE}
    advice |= {check.name: check.advice for check in quick()}
    for line in lines(services, in_full=True):
        if line.level == OK:
            yield line
        else:
            level = WARNING if line.level == NOTE else line.level
            yield replace(line, level=level, advice=line.advice or advice[line.name])


_SILENT = (
    "no worker answers, so their queues and stores are unknown",
    "start a worker; with the solo pool, one answers only between tasks",
)


def workers(services: Services) -> Iterator[Line]:
    """Ask the workers two questions, a second each, and judge their answers.

    Silent workers get the second one again.
    """
    heard, wrong, strange = answers(services, "active_queues"), unconsumed(services), list[Line]()
    if heard:
        reported = delayq_answers(services, heard)
        wrong += other_stores(services, reported, heard)
        wrong += unheard_queues(services, heard, delivered(services))
        strange = strangers(services, reported, heard)
    else:
        yield Line("workers", WARNING, *_SILENT)
    yield from (*wrong, *strange)
    if heard and not wrong and not strange:
        answered = f"{counted(len(heard), 'worker')} answered"
        yield Line("workers", OK, f"{answered}: they use this store and all queues of tasks")


def other_stores_here(services: Services, connection: Connection) -> Iterator[Line]:
    """Yield each other store in this Redis that has tasks for the app's queues, and no scanner."""
    found = forlorn_stores(services, connection)
    yield from found or ()
    if not found:
        well = "no tasks for this app's queues wait in another one in this Redis without a scanner"
        unknown = "unknown: this needs +scan, and the right to read the keys of other stores"
        yield Line("other stores", OK, unknown if found is None else well)


_FORLORN = (
    "task {} holds the key {} until {:%Y-%m-%d %H:%M} UTC, and neither a worker nor the broker has "
    "that task"
)
_FREE_IT = "if it does not run: celery -A proj delayq free {}"


def held_keys(services: Services) -> Iterator[Line]:
    """Yield a warning for each key whose task nobody has: it was purged, or its worker was killed.

    Nothing, if no key is held so, or somebody may have the tasks: a worker that does not answer, or
    the broker, which has messages.
    """
    held = {hold.id: hold for hold in _held(services)}
    if not held:
        return
    heard = answers(services, "query_task", ids=[*held])
    alive = {task_id for tasks in heard.values() if isinstance(tasks, dict) for task_id in tasks}
    if not heard or len(heard) < len(services.entries.scanners()) or not is_idle(services):
        return
    # Those that were held before, and are still held after the answers.
    lost = [hold for hold in held.values() if hold.id not in alive and _is_held(services, hold)]
    for hold in lost[:NAMED]:
        found = _FORLORN.format(plain(hold.id), plain(hold.key), hold.until)
        yield Line("keys", WARNING, found, _FREE_IT.format(plain(hold.key)))
    if len(lost) > NAMED:
        yield Line("keys", WARNING, f"so do {counted(len(lost) - NAMED, 'more task')}", "the same")
    if not lost:
        yield Line("keys", OK, f"workers have the tasks of {counted(len(held), 'held key')}")


def _held(services: Services) -> Iterator[KeyHolder]:
    for shard in services.scripts:
        for key in ask(shard.connection, "ZRANGE", shard.keys["held"], 0, MOST - 1) or ():
            holder = services.entries.holder(key.decode(errors="replace"))
            if holder is not None and holder.state == "left" and holder.until_finished:
                yield holder


def _is_held(services: Services, seen: KeyHolder) -> bool:
    now = services.entries.holder(seen.key)
    return now is not None and now.delivery == seen.delivery


@dataclass(frozen=True)
class Trips:
    """Some round trips to Redis, one after the other.

    Attributes:
        median_ms: The median.
        worst_ms: The longest.
        ahead: Least and most seconds by which Redis's clock is ahead of this machine's.
    """

    median_ms: float
    worst_ms: float
    ahead: tuple[float, float]


def trips(connection: Connection) -> Trips:
    """Measure round trips by reading Redis's time repeatedly.

    Raises:
        StoreError: Redis does not answer with its time.
    """
    took, least, most = [], float("-inf"), float("inf")
    question = packed(["TIME"])
    for _ in range(TRIPS):
        sent, began = time.time(), clock.monotonic()
        seconds, micros = connection.execute("doctor", question)
        took.append((clock.monotonic() - began) * 1000)
        theirs = int(seconds) + int(micros) / 1_000_000
        # Redis read its clock after the request was sent, and before the answer came.
        least, most = max(least, theirs - time.time()), min(most, theirs - sent)
    took.sort()
    # If a clock was set meanwhile, the ends may have changed places.
    low, high = sorted((least, most))
    return Trips(took[len(took) // 2], took[-1], (low, high))


def task_bytes(connection: Connection, shards: Sequence[Keys]) -> int | None:
    """Return the mean bytes of a waiting entry; ``None`` if unknown, or if there are too few.

    Raises:
        StoreUnavailable: no answer came in time.
    """
    counts = [ask(connection, "HLEN", keys["records"]) or 0 for keys in shards]
    if sum(counts) < LEAST_WEIGHED:
        return None
    size = 0
    for keys, some in zip(shards, counts, strict=True):
        # If there are records, no answer means that Redis refuses the command.
        sizes = [ask(connection, "MEMORY", "USAGE", keys[name], "SAMPLES", 100) for name in WEIGHED]
        if some and sizes[0] is None:
            return None
        size += sum(filter(None, sizes))
    return round(size / sum(counts))


def reached(connection: Connection, keys: Keys, replicas: int, *, aof: bool) -> int | None:
    """Write a scratch key, and return how many replicas have it once *replicas* do or time is up.

    Args:
        connection: The connection to the master.
        keys: The keys of a shard there.
        replicas: How many replicas to wait for.
        aof: Whether they must have it in their append-only files.

    Returns:
        The number; ``None`` if this user may not write or wait.
    """
    key = f"{keys['due']}-doctor-{os.urandom(4).hex()}"
    ms = WAITAOF_MS if aof else WAIT_MS
    wait: list[str | int] = ["WAITAOF", 0, replicas, ms] if aof else ["WAIT", replicas, ms]
    commands = [packed(["EVAL", _WRITE, 1, key]), packed(wait)]
    try:
        replies = connection.exchange("doctor", commands, clock.monotonic() + ms / 1000 + GRACE)[1]
    except StoreError:
        return None
    return int(replies[1] if aof else replies)


AT_THE_STORE = (
    Question(
        "store", "whether Redis answers, and is 6.2 or later", _version,
        "Redis cannot be reached, or is older than 6.2", runbook="delayqstoreaway",
        advice="check the rights of its Redis user, and Redis's log",
    ),
    Question(
        "replication", "whether it has replicas", lambda patient: risks.role(patient.server),
        "Redis is a replica; or its replicas are behind, or fewer than `min-replicas-to-write` "
        "wants",
        runbook="delayqunreplicated", rights="+info",
    ),
    Question(
        "eviction", "its maxmemory-policy", lambda patient: risks.eviction(patient.server),
        "Redis deletes waiting tasks when its memory is full",
        runbook="delayqemptied", rights="+info",
    ),
    Question(
        "persistence", "whether a restart loses waiting tasks",
        lambda patient: risks.persistence(patient.server),
        "a restart, or a crash, loses more than a second or two; or, in a line `disk`, Redis "
        "cannot write to its disk",
        rights="+info and +config|get",
    ),
    Question(
        "memory", "how much memory is left", _memory,
        "Redis is full or nearly full; or `delayq_remember` may take more than its `maxmemory`",
        runbook="redis-is-full-what-now", rights="+info", needs="+info, +memory|usage",
    ),
    Question(
        "wait for replicas", "whether as many as delayq_wait_replicas wants have a write in time",
        _replicas,
        f"fewer replicas than it wants have a write on a scratch key within {WAIT_MS / 1000:g} s, "
        f"or {WAITAOF_MS / 1000:g} s with `\"aof\"`",
        runbook="delayqunreplicated", needs="+info, +wait, +waitaof",
    ),
    Question(
        "rights", "whether its user may do all that the package does",
        lambda patient: rights(patient.services, patient.connection),
        "Redis refuses a command, a key, a channel, or the list of a queue of the app or of "
        "waiting tasks: by `ACL DRYRUN`, which runs nothing; unknown on Redis 6.2",
        runbook="delayqunscheduled", needs="+acl|whoami, +acl|dryrun",
    ),
    Question(
        "round trip", "how long twenty calls take", _round_trip,
        f"half of twenty calls take more than {SLOW_MS:g} ms", runbook="delayqlate",
    ),
    Question(
        "clock", "whether Redis's and this machine's agree", _clock,
        f"Redis's and this machine's differ by more than {WRONG:g} s",
        runbook="delayqclockdifference",
    ),
    Question(
        "other stores", "whether tasks for this app's queues wait in another one, with no scanner",
        lambda patient: other_stores_here(patient.services, patient.connection),
        "tasks for this app's queues wait in one, without a scanner: a process has a wrong "
        "`delayq_prefix`",
        runbook="delayqunread", needs="+scan, and other stores' keys: ~{*:*}:*",
    ),
    Question(
        "scanners", "whether tasks are delivered", lambda patient: health(patient.services),
        each=False,
    ),
    Question(
        "format", "whether each scanner reads the format of records",
        lambda patient: formats(patient.services),
        "a scanner cannot read that of records; or all read a newer one, to which you can upgrade",
        each=False,
    ),
)  # fmt: skip
AT_THE_BROKER = (
    Question(
        "broker", "whether it answers, and takes messages", _broker,
        "its URL is invalid, it does not answer, or RabbitMQ does not confirm a message, which "
        "goes to no queue; or, in a line `queues`, no worker consumes a queue of the app on "
        "RabbitMQ",
        runbook="delayqbrokerdown",
    ),
    Question(
        "workers", "whether they consume the queues of tasks, and use this store", _workers,
        "no worker consumes a queue of a waiting task, or one with delivered tasks; or a worker "
        "has another store, no `DelayQ`, another release of it, or does not answer within a few "
        "seconds",
        runbook="delayqunread",
    ),
    Question(
        "keys", "whether a worker or the broker has the tasks that hold unique keys", _held_keys,
        "neither a worker nor the broker has the task that holds one; unknown while the broker has "
        "messages or a worker is silent",
        runbook="a-task-did-not-run",
    ),
)  # fmt: skip
