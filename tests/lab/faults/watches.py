"""Messages at a queue, and their times of arrival; none is taken off before the end.

a thread looks on ---> when each message was first seen       (it may lose its connection)
read() at the end ---> every message there is, with that time
"""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

from kombu import Connection, Consumer, Queue
from kombu.exceptions import KombuError
from redis import RedisError

from tests.lab.faults.callers import now_ms
from tests.lab.faults.history import Copy

LOOK = 0.01  # seconds between two looks, and after which a connection is tried again
Key = tuple[str, int, int, bool]


class Watch:
    """Looks at one queue in a thread of its own, from ``with`` on."""

    def __init__(self):
        self._seen: dict[Key, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def seen(self, due: int) -> int:
        """How many of those due at that time, in Unix ms, were seen so far."""
        return sum(key[2] == due for key in list(self._seen))

    def read(self) -> list[Copy]:
        """End the watch; every message that is at the queue."""
        self.__exit__()
        keys = list(self._all())
        return [Copy(*key[:3], self._seen.get(key, now_ms()), key[3]) for key in keys]

    def _run(self) -> None:
        while not self._over.wait(LOOK):
            with suppress(OSError, RedisError, KombuError):
                self._look()

    def _note(self, keys: Iterator[Key]) -> None:
        seen = now_ms()
        for key in keys:
            self._seen.setdefault(key, seen)

    def _look(self) -> None:
        raise NotImplementedError

    def _all(self) -> Iterator[Key]:
        raise NotImplementedError


class ListWatch(Watch):
    """A queue of Celery's on a Redis: a list, whose newest message is the first."""

    def __init__(self, client, queue: str):
        super().__init__()
        self._client = client
        self._queue = queue
        self._length = 0

    def _look(self) -> None:
        # Counted from the oldest, which stays the last whatever comes meanwhile.
        new = self._client.lrange(self._queue, 0, -self._length - 1)
        self._note(map(_of_text, new))
        self._length += len(new)
        if not new:
            # A server that was killed may have forgotten the newest.
            self._length = min(self._length, self._client.llen(self._queue))

    def _all(self) -> Iterator[Key]:
        return map(_of_text, self._client.lrange(self._queue, 0, -1))


class QueueWatch(Watch):
    """A queue of RabbitMQ's, whose messages are consumed, and given back by the watch's end."""

    def __init__(self, url: str, queue: str):
        super().__init__()
        self._url = url
        self._queue = Queue(queue)

    def __enter__(self):
        with Connection(self._url) as connection:
            self._queue(connection.default_channel).declare()
        return super().__enter__()

    def _look(self) -> None:
        with Connection(self._url, connect_timeout=1) as connection, self._consumer(connection):
            while not self._over.is_set():
                with suppress(TimeoutError):
                    connection.drain_events(timeout=0.1)

    def _consumer(self, connection) -> Consumer:
        return Consumer(
            connection, [self._queue], on_message=lambda one: self._note(iter([_of_message(one)]))
        )

    def _all(self) -> Iterator[Key]:
        with Connection(self._url) as connection:
            channel = connection.default_channel
            with closing(channel):
                while (message := channel.basic_get(self._queue.name)) is not None:
                    yield _of_message(message)


def _of_text(text: bytes) -> Key:
    message = json.loads(text)
    return _key(message["headers"], base64.b64decode(message["body"]))


def _of_message(message) -> Key:
    return _key(message.headers, message.body)


def _key(headers: dict, body: bytes | str) -> Key:
    (version,), *_ = json.loads(body)
    marked = bool(headers.get("delayq_redelivered"))
    return headers["id"], version, headers["delayq_due"], marked
