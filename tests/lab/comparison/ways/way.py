"""The interface of a driver, which each way implements as its own manual says."""

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

_numbers = itertools.count()


class NotOffered(Exception):
    """The way has no call for this."""


@dataclass(frozen=True)
class Role:
    """A kind of process.

    Attributes:
        command: The arguments of ``python -m``; NUMBER becomes another number for each process.
        ready: A pattern in the line of its log that says it is up.
    """

    command: tuple[str, ...]
    ready: str


class Way:
    """A way of delaying a job. It offers only the methods that it overrides.

    Attributes:
        roles: The processes that have to run, by name; the workers' is ``worker``.
        declared_by_workers: Whether a worker must have run once before anything can be scheduled.
    """

    roles: ClassVar[Mapping[str, Role]]
    declared_by_workers: ClassVar[bool] = False

    def send(self, label: str) -> None:
        """Let a job run at once."""
        raise NotImplementedError

    def schedule(self, label: str, delay: float) -> str:
        """Let a job run after *delay* seconds; returns its id."""
        raise NotImplementedError

    def fill(self, count: int, delay: float) -> None:
        """Schedule many, in the quickest way that it has."""
        self.one_by_one(count, delay)

    def one_by_one(self, count: int, delay: float) -> float:
        """Schedule many, a call each; returns the seconds."""
        started = time.perf_counter()
        for _ in range(count):
            self.schedule(f"one-{next(_numbers)}", delay)
        return time.perf_counter() - started

    def cancel(self, job_id: str) -> bool | None:
        """Cancel a job; returns whether it says that it did, None if it says nothing."""
        raise NotOffered

    def reschedule(self, job_id: str, delay: float) -> str:
        """Let it run *delay* seconds from now; returns the id under which it waits then."""
        raise NotOffered

    def waiting(self) -> dict[str, float]:
        """The waiting jobs: id -> due time, Unix seconds."""
        raise NotOffered

    def schedule_under_key(self, key: str, label: str, delay: float) -> None:
        """Schedule a job of which one may wait under its key; the later call counts, if it can."""
        raise NotOffered

    def schedule_tagged(self, tag: str, label: str, delay: float) -> None:
        """Schedule a job that can be cancelled with others by their tag."""
        raise NotOffered

    def cancel_tag(self, tag: str) -> None:
        raise NotOffered
