"""A proxy on loopback that delays each answer a little."""

import contextlib
import socket
import threading
import time


class SlowLink:
    """Connections through it reach a server of this machine; answers take *seconds* longer.

    Args:
        far: The server: its port, or the path of its socket, to which it may listen later.
        seconds: How much longer.
        listening: A socket to accept connections at; by default at a free `port`.

    Attributes:
        waits: When each answer began to be late, and when it was passed on, by the monotonic clock.
    """

    def __init__(self, far, seconds, listening=None):
        self._far, self._seconds = far, seconds
        self._over = threading.Event()
        if listening is None:
            listening = socket.create_server(("127.0.0.1", 0), backlog=256)
            self.port = listening.getsockname()[1]
        self._socket = listening
        self._open = []
        self.waits = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        # shutdown() wakes the thread that is blocked in accept(); close() alone does not.
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        for one in tuple(self._open):
            _shut(one)

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near):
        self._open.append(near)
        with (
            near,
            contextlib.suppress(OSError),
            self._reach() as far,
        ):
            for one in (near, far):
                if one.family == socket.AF_INET:
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=self._answers, args=(far, near), daemon=True)
            back.start()
            with contextlib.suppress(OSError):
                while request := near.recv(1 << 16):
                    far.sendall(request)
            _shut(far)
            back.join()
        self._open.remove(near)

    def _reach(self):
        if isinstance(self._far, int):
            return socket.create_connection(("127.0.0.1", self._far))
        far = socket.socket(socket.AF_UNIX)
        while far.connect_ex(self._far):
            self._over.wait(0.005)
        return far

    def _answers(self, far, near):
        with contextlib.suppress(OSError):
            while answer := far.recv(1 << 20):
                began = time.monotonic()
                self._over.wait(self._seconds)
                self.waits.append((began, time.monotonic()))
                near.sendall(answer)
        _shut(near)


def _shut(one):
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
