"""A caller that checks that each answer belongs to its own call, for tests that interrupt it.

Redis is behind a proxy that holds each answer back a little, so that an interrupted call leaves one
on its way.
"""

import queue
import time
from contextlib import suppress

from celery_delayq.core.servers.connection import Connection, packed
from celery_delayq.core.servers.endpoint import Endpoint
from celery_delayq.errors import StoreError
from tests.support.waiting import PATIENCE

MOST = 3  # connections


class Line:
    """The callers that have waited for a connection, seen by the queues that they waited at."""

    def __init__(self, monkeypatch):
        self.waited = 0  # not the places: what an interrupted caller lost there must be freed
        line = self

        class Place(queue.SimpleQueue):
            is_new = True

            def get(self, *args, **options):
                line.waited += self.is_new
                self.is_new = False
                return super().get(*args, **options)

        monkeypatch.setattr(queue, "SimpleQueue", Place)

    def joins(self):
        """Return a function that says whether a caller has begun to wait since now."""
        before = self.waited
        return lambda: self.waited > before


class Asking:
    """Sends numbered calls, and checks their answers."""

    def __init__(self, port, most=MOST):
        self.client = Connection(Endpoint("127.0.0.1", port))
        self.most, self.number = most, 0

    @property
    def pool(self):
        return self.client.pool

    def __call__(self):
        """Make a call; fail if the answer belongs to another one."""
        self.number += 1
        answer = self.client.execute("echo", packed(["ECHO", self.number]))
        assert answer == b"%d" % self.number

    def wrongly(self):
        with suppress(StoreError):
            self.client.execute("wrong", packed(["NO-SUCH-COMMAND"]))

    def takes_all(self):
        """Take every connection of the pool, and give them back."""
        until = time.monotonic() + PATIENCE
        taken = {self.pool.take(until) for _ in range(self.most)}
        for connection in taken:
            self.pool.give(connection)
        assert len(taken) == self.most
