"""Fill a store by the hundred thousand, as fast as Redis takes it.

It records the command of one real ``delay_until``, and sends it again with other ids and due times,
over a bare socket. So the entries have the package's own format, without a minute of Celery for
every hundred thousand.
"""

import itertools
import random
import re
import socket
import time
import uuid
from collections.abc import Iterable, Iterator

from celery import Celery

from celery_delayq.core.store.scripts import loaded

CHUNK = 500
SENTINEL_DUE_MS = 8_888_888_888_888
_MARKER = b"delayq-benchmark"
_REFUSED = re.compile(rb"^(-|join|late|stale|.*conflict)", re.MULTILINE)
_ECHO = b"*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n" % (len(_MARKER), _MARKER)


class Template:
    """The command of one ``delay_until`` of the no-op task, with its id and due time left open."""

    def __init__(self, app: Celery, *, queue: str | None = None, tags: tuple[str, ...] = ()):
        signature = app.noop.s(1, 2)
        if queue:
            signature.set(queue=queue)
        if tags:
            signature.set(delayq_tags=tags)
        self._command, self._id = _watched(app, signature)
        self._operation, self._deadline = _call_of(self._command)

    def command(self, task_id: uuid.UUID, due_ms: int) -> bytes:
        """The command, as another call that ends some seconds from now."""
        deadline = b"%d" % ((time.time() + 3) * 1_000_000)
        command = self._command.replace(self._deadline, deadline)
        command = command.replace(self._operation, random.randbytes(len(self._operation)))
        command = command.replace(str(self._id).encode(), str(task_id).encode())
        command = command.replace(self._id.bytes, task_id.bytes)
        return command.replace(b"%d" % SENTINEL_DUE_MS, b"%013d" % due_ms)


def _watched(app: Celery, signature) -> tuple[bytes, uuid.UUID]:
    client = app.delayq.services.scripts[0].connection
    sent, execute = [], client.execute

    def watch(step, command, *until):
        sent.append(b"*%d\r\n%s" % (len(command), b"".join(command)))
        return execute(step, command, *until)

    # The first call loads the script. After the cancel, Redis has dropped the template that both
    # calls share, so the second call ends with a command that depends on nothing in Redis.
    app.delayq.cancel(signature.clone().delay_until(SENTINEL_DUE_MS / 1000).id)
    client.execute = watch
    try:
        result = signature.delay_until(SENTINEL_DUE_MS / 1000)
    finally:
        del client.execute
    app.delayq.cancel(result.id)
    return sent[-1], uuid.UUID(result.id)


def _call_of(command: bytes) -> tuple[bytes, bytes]:
    """The operation and the deadline of a call of the script ``schedule``."""
    words, at = [], command.index(b"\n") + 1
    while at < len(command):
        start = command.index(b"\n", at) + 1
        size = int(command[at + 1 : start])
        words.append(command[start : start + size])
        at = start + size + 2
    _, _, keys, *rest = words
    given = dict(zip(loaded("schedule.lua").arguments, rest[int(keys) :], strict=False))
    return given["operation"], given["deadline"]


def fill(path: str, template: Template, due_ms: Iterable[int]) -> list[str]:
    """Schedule one entry for each due time, in that order; returns the ids.

    Args:
        path: The server's socket.
        template: The template of all entries.
        due_ms: Unix times in ms.
    """
    ids: list[str] = []
    with Wire(path) as wire:
        for chunk in _chunks(due_ms, CHUNK):
            fresh = [uuid.UUID(int=random.getrandbits(128), version=4) for _ in chunk]
            wire.send(b"".join(map(template.command, fresh, chunk)))
            ids.extend(map(str, fresh))
    return ids


class Wire:
    """A bare connection that keeps one chunk of commands under way and looks for errors only."""

    def __init__(self, path: str):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(60)
        self._socket.connect(path)
        self._under_way = 0

    def send(self, commands: bytes) -> None:
        self._socket.sendall(commands + _ECHO)
        self._under_way += 1
        while self._under_way > 1:
            self._receive()

    def _receive(self) -> None:
        received = b""
        while not received.count(_MARKER):
            received += self._socket.recv(1 << 20)
        self._under_way -= received.count(_MARKER)
        refused = _REFUSED.search(received)
        if refused:
            raise RuntimeError(f"Redis refused a command: {received[refused.start() :][:500]!r}")

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        while self._under_way > 0:
            self._receive()
        self._socket.close()


def _chunks(values: Iterable[int], size: int) -> Iterator[list[int]]:
    values = iter(values)
    while chunk := list(itertools.islice(values, size)):
        yield chunk


def shuffled_past(count: int) -> list[int]:
    """Due times that are all past, each another ms, in no order."""
    now_ms = int(time.time() * 1000)
    return random.sample(range(now_ms - 2 * count - 1000, now_ms - 1000), count)


def shuffled_future(count: int, *, after: float = 86_400) -> list[int]:
    """Due times from *after* seconds ahead, each another ms, in no order."""
    start = int((time.time() + after) * 1000)
    return random.sample(range(start, start + 2 * count), count)
