"""Servers that misbehave: one that hangs up, and proxies that stand between a process and Redis."""

import contextlib
import functools
import hashlib
import re
import socket
import threading
from collections import Counter
from multiprocessing.connection import wait

from celery_delayq.core.store.scripts import load

LOADING = b"-LOADING Redis is loading the dataset in memory\r\n"
FULL = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"
AWAY = b"-NOREPLICAS Not enough good replicas to write.\r\n"  # and it is not asked again
CUT = object()  # closes the connection; see `Between`
LARGE_PIECE = 1 << 16
BEGINS = re.compile(rb"\*\d+\r\n\$\d+\r\n(EVALSHA|EVAL)\r\n\$(\d+)\r\n")
PIECE = 4096  # bytes that a proxy reads at once; many requests have more
QUICK = {"max_retries": 3, "interval_start": 0, "interval_step": 0, "interval_max": 0}


class Listener:
    """A loopback port; it counts each connection and passes it to ``serve`` in a thread."""

    def __init__(self, serve=socket.socket.close):
        self._serve = serve
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.connections = 0
        self._open = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        # shutdown() wakes the thread that is blocked in accept(); close() alone does not.
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        for connection in self._open:
            hang_up(connection)

    def _accept(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()


def hang_up(connection):
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


class ReplySwallower:
    """A proxy to a Redis; it hangs up instead of passing on the reply to a marked command."""

    def __init__(self, port, mark, times=1):
        self._port = port
        self._mark = mark
        self._left = times
        self.swallowed = 0
        self._listener = Listener(self._serve)

    def __enter__(self):
        self._listener.__enter__()
        return self

    def __exit__(self, *error):
        self._listener.__exit__(*error)

    @property
    def port(self):
        return self._listener.port

    def relent(self):
        """Pass on all replies from here on."""
        self._left = 0

    def _serve(self, near):
        with (
            contextlib.suppress(OSError, ValueError),  # it is closed by another thread
            socket.create_connection(("127.0.0.1", self._port)) as far,
        ):
            asked = b""
            while True:
                ready = wait([near, far])  # not select(), which knows no descriptor past 1023
                # A request may come in several pieces; it is whole once Redis replies.
                if near in ready:
                    if not (piece := near.recv(PIECE)):
                        break
                    far.sendall(piece)
                    asked += piece
                if far in ready:
                    if not (answer := far.recv(PIECE)):
                        break
                    if self._mark in asked and self._left:
                        self._left -= 1
                        self.swallowed += 1
                        break
                    near.sendall(answer)
                    asked = b""
        hang_up(near)


class Between:
    """A proxy before a Redis that lets a test act around the calls of a script.

    ``before("ack", act)`` calls *act* before Redis gets such a call, ``after("ack", act)`` before
    the caller gets the answer. If it returns ``CUT``, the connection is closed at that moment; if
    it returns bytes, they are the answer.

    Args:
        port: The Redis's.
        names: The names of other scripts than the package's, by their SHA-1.

    Attributes:
        asked: How often each script was called.
        last: The last call of each script, as it was sent.
    """

    def __init__(self, port, names=()):
        self._port = port
        self._names = {**names_by_sha(), **dict(names)}
        self._acts = {}
        self.asked = Counter()
        self.last = {}
        self._listener = Listener(self._serve)

    def __enter__(self):
        self._listener.__enter__()
        return self

    def __exit__(self, *error):
        self._acts.clear()
        self._listener.__exit__(*error)

    def url(self, db=0):
        return f"redis://127.0.0.1:{self.port}/{db}"

    @property
    def port(self):
        return self._listener.port

    def before(self, script, act):
        self._acts["before", script] = act

    def after(self, script, act):
        self._acts["after", script] = act

    def repeat(self, script):
        """Let the last call of a script arrive once more, from nowhere."""
        with socket.create_connection(("127.0.0.1", self._port)) as far:
            far.sendall(self.last[script])
            assert not far.recv(LARGE_PIECE).startswith(b"-")

    def _script_of(self, sha_or_text):
        name = self._names.get(sha_or_text)
        return name or self._names[hashlib.sha1(sha_or_text).hexdigest().encode()]

    def _act(self, when, script):
        act = self._acts.get((when, script))
        return act and act()

    def _serve(self, near):
        with (
            contextlib.suppress(OSError, ValueError),  # it is closed by another thread
            socket.create_connection(("127.0.0.1", self._port)) as far,
        ):
            script = None
            while True:
                ready = wait([near, far])  # not select(), which knows no descriptor past 1023
                if near in ready:
                    if not (piece := near.recv(LARGE_PIECE)):
                        break
                    if (begins := BEGINS.match(piece)) is not None:
                        end = begins.end() + int(begins[2])
                        while len(piece) < end:
                            piece += near.recv(LARGE_PIECE)
                        script = self._script_of(piece[begins.end() : end])
                        self.asked[script] += 1
                        self.last[script] = piece
                        instead = self._act("before", script)
                        if instead is CUT:
                            break
                        if isinstance(instead, bytes):
                            near.sendall(instead)
                            continue
                    far.sendall(piece)
                if far in ready:
                    if not (answer := far.recv(LARGE_PIECE)):
                        break
                    answered, script = script, None
                    instead = answered and self._act("after", answered)
                    if instead is CUT:
                        break
                    near.sendall(instead if isinstance(instead, bytes) else answer)
        hang_up(near)


@functools.cache
def names_by_sha():
    return {script.sha.encode(): name for name, script in load().items()}
