"""Checks an app's store and broker: a list of questions, each answered by lines.

The command prints them. ``core/servers/risks.py`` judges the Redis, also for the warnings that a
worker logs when it starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from ...core.errors import StoreError, StoreUnavailable
from ...core.servers import risks
from ...core.servers.connection import Connection, packed
from ...core.servers.endpoint import shown
from ...core.servers.risks import ERROR, OK, TASK_BYTES, WARNING, Facts, Level, Line, ask
from ...core.services import Services
from ...core.text import plain
from .doctor_broker import broker, unusable
from .doctor_keys import held_keys
from .doctor_rights import rights
from .doctor_tasks import health
from .doctor_workers import other_stores_here, workers
from .observed import TRIPS, Trips, reached, task_bytes, trips
from .upgrading import formats

OLDEST = (6, 2)
SLOW_MS = 5.0  # a longer round trip makes callers wait
WRONG = 2.0  # seconds by which two clocks may differ
_LOSES, _BOTH = "whether a restart loses waiting tasks", "+info and +config|get"


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
class Question:
    """One requirement.

    Attributes:
        name: The name of its line.
        look: Checks it, and returns its lines.
        unknown: The unknown fact if there is no line of that name; empty: no line is needed.
        rights: The rights with which it would be known.
        each: Whether each Redis of the store is asked.
    """

    name: str
    look: Callable[[Patient], Iterable[Line]]
    unknown: str = ""
    rights: str = "+info"
    each: bool = True

    def lines(self, patient: Patient) -> Iterator[Line]:
        """Yield the lines, with a warning if the answer is unknown."""
        is_known = not self.unknown
        for line in self.look(patient):
            is_known = is_known or line.name == self.name
            yield line
        if not is_known:
            found = f"{self.unknown} is unknown: the store's Redis does not report it to this user"
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


# The checks of the store's Redis.


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


AT_THE_STORE = (
    Question("store", _version),
    Question("replication", lambda patient: risks.role(patient.server), "whether it has replicas"),
    Question("eviction", lambda patient: risks.eviction(patient.server), "its maxmemory-policy"),
    Question("persistence", lambda patient: risks.persistence(patient.server), _LOSES, _BOTH),
    Question("memory", _memory, "how much memory is left"),
    Question("wait for replicas", _replicas),
    Question("rights", lambda patient: rights(patient.services, patient.connection)),
    Question("round trip", _round_trip),
    Question("clock", _clock),
    Question(
        "other stores", lambda patient: other_stores_here(patient.services, patient.connection)
    ),
    Question("scanners", lambda patient: health(patient.services), each=False),
    Question("format", lambda patient: formats(patient.services), each=False),
)
AT_THE_BROKER = (
    Question("broker", _broker),
    Question("workers", _workers),
    Question("keys", _held_keys),
)
