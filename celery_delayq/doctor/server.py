"""What the store's Redis is, how it may lose what waits, and how much room it has."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..care.observed import reached, task_bytes
from ..servers import risks
from ..servers.facts import ask
from ..servers.risks import ERROR, OK, TASK_BYTES, WARNING, Line
from .patient import Patient, unknown

OLDEST = (6, 2)


def server(patient: Patient) -> Iterator[Line]:
    """All that a Redis says of itself."""
    told = patient.server
    yield _version(patient)
    yield from [*risks.role(told)] or [unknown("replication", "whether it has replicas")]
    yield from [*risks.eviction(told)] or [unknown("eviction", "its maxmemory-policy")]
    kept = [*risks.persistence(told)]
    if all(line.name != "persistence" for line in kept):
        both = "+info and +config|get"
        kept.append(unknown("persistence", "whether a restart loses what waits", both))
    yield from kept
    yield from [*_memory(patient)] or [unknown("memory", "how much memory is left")]
    wanted = patient.services.settings.wait_replicas
    if wanted is not None:
        yield _waiting(patient, *wanted)


def _version(patient: Patient) -> Line:
    services, version = patient.services, patient.server.version
    where = f"{services.endpoint.url}, prefix {services.settings.prefix}"
    number = re.match(r"Redis (\d+)\.(\d+)", version)
    if number and (int(number[1]), int(number[2])) < OLDEST:
        said = f"{version} at {where}, where 6.2 or later is needed"
        return Line("store", ERROR, said, "take a later Redis, or a Valkey")
    return Line("store", OK, f"{version or 'a Redis of unknown version'} at {where}")


def _memory(patient: Patient) -> Iterator[Line]:
    keys = [one.keys for one in patient.services.scripts]
    size = task_bytes(patient.connection, keys)
    by = "at" if size is None else "at a measured"
    return risks.memory(patient.server, size or TASK_BYTES, by)


def _waiting(patient: Patient, count: int, seconds: float, kind: str = "") -> Line:
    """Whether scheduling can wait for as many replicas as it is to."""
    name, said = "wait for replicas", f"delayq_wait_replicas asks for {count}"
    # Of none, within a millisecond: whether it may be asked.
    question = ("WAITAOF", 0, 0, 1) if kind else ("WAIT", 0, 1)
    if ask(patient.connection, *question) is None:
        said = f"{said}, and this Redis, or its user, knows no {question[0]}: nothing is waited for"
        return Line(name, WARNING, said, f"grant +{question[0].lower()}, or leave the setting out")
    there = sum(one.get("state") == "online" for one in patient.server.replicas)
    are = f"{there} {'is' if there == 1 else 'are'} there"
    if patient.server.info and there < count:
        said = f"{said}, and {are}: each call waits {seconds:g} s in vain"
        return Line(name, WARNING, said, "bring the replicas back, or ask for fewer")
    had = reached(patient.connection, patient.services.settings.prefix, count, aof=bool(kind))
    if had is not None and had < count:
        said = f"{said}, and {had} of them had a write in time: each call may wait {seconds:g} s"
        return Line(name, WARNING, said, "see the replicas' logs, and their links to the master")
    if not patient.server.info:
        return Line(name, OK, f"{said}; how many there are is unknown")
    return Line(name, OK, f"{said}, and {are}")
