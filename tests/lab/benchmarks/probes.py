"""Single entries whose arrival in a queue of their own is watched, to see how late they are."""

import contextlib
import random
import time
from collections.abc import Iterator

from celery import Celery

from tests.lab.benchmarks.children import Child
from tests.lab.benchmarks.roles import arrivals, punctual
from tests.support.redis_server import RedisServer

QUEUE = "probe"


class Probes:
    """Probes that were scheduled; ``late_ms`` waits for all of them."""

    def __init__(self, watch: Child, count: int, last: float):
        self._watch = watch
        self._count = count
        self._last = last

    def late_ms(self) -> list[float]:
        """How late each arrived, in ms."""
        arrived = self._watch.hear(max(0.0, self._last - time.time()) + 60)
        assert len(arrived) == self._count, f"only {len(arrived)} of {self._count} arrived"
        return [at - due for due, at in arrived]


@contextlib.contextmanager
def probes(
    server: RedisServer, app: Celery, count: int, *, start: float, span: float
) -> Iterator[Probes]:
    """Schedule *count* probes, due at random instants of *span* seconds from Unix time *start*."""
    with Child(arrivals, server.socket, QUEUE, count) as watch:
        for due_ms in instants(count, start, span):
            app.noop.s(1, 2).set(queue=QUEUE).delay_until(due_ms / 1000)
        assert time.time() < start, "scheduling took too long; start later"
        yield Probes(watch, count, start + span)


@contextlib.contextmanager
def punctual_probes(
    server: RedisServer, count: int, *, start: float, span: float
) -> Iterator[Probes]:
    """The same from a process that does nothing but sleep and push."""
    with (
        Child(arrivals, server.socket, QUEUE, count) as watch,
        Child(punctual, server.socket, QUEUE, instants(count, start, span)),
    ):
        yield Probes(watch, count, start + span)


def instants(count: int, start: float, span: float) -> list[int]:
    """Different instants, Unix ms, in no order."""
    first = int(start * 1000)
    return random.sample(range(first, first + int(span * 1000)), count)
