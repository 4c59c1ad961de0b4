"""A TCP proxy that misbehaves on request: a network's faults, on loopback and without root.

client ---> proxy ---> server
              |
              +-- refuse()   connections are refused; open ones are cut
              +-- slowness   seconds that each piece takes on its way, up to 64 KB
              +-- stall()    everything stays open, nothing is forwarded, until resume()
              +-- deaden()   the same for open connections, for ever: a half-open link
              +-- cut()      open connections are cut, new ones are welcome
              +-- cut_after  forwards a piece with these bytes, and cuts before any answer
              +-- lose()     the same with every n-th piece that contains these bytes, until 0
              +-- delay()    every n-th piece arrives later; its sender may be gone by then
              +-- forget()   ends connections that are idle for too long: by FIN, RST, or silently
              +-- end()      ends those that are open, in the same ways
"""

import contextlib
import itertools
import selectors
import socket
import struct
import threading
from collections.abc import Iterable

from tests.support.ports import free_port
from tests.support.waiting import eventually

CHUNK = 65536
_RST = struct.pack("ii", 1, 0)  # a linger time of 0: closing sends a RST


class Proxy:
    """Forwards a loopback port to another, until a method sets a fault."""

    def __init__(self, target: int):
        self.port = free_port()
        self.cut_after: bytes | None = None
        self.cuts = 0
        self.accepted = 0
        self.delayed = 0
        self.held = 0
        self.slowness = 0.0
        self._lose = self._delay = (b"", 0)
        self._delay_by = 0.0
        self.forgotten = 0
        self._idle: float | None = None
        self._ending = ""
        self._requests = itertools.count(1)
        self._over = threading.Event()
        self.target = target
        self._flowing = threading.Event()
        self._flowing.set()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._dead: set[socket.socket] = set()
        self._listener: socket.socket | None = None

    def __enter__(self):
        self.accept()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.refuse()
        self._flowing.set()

    def accept(self) -> None:
        """Listen, and forward."""
        self._flowing.set()
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            threading.Thread(target=self._serve, args=(self._listener,), daemon=True).start()

    def refuse(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            # If it is only closed, the port stays open as long as accept() blocks on it.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.cut()

    def stall(self) -> None:
        self._flowing.clear()

    def resume(self) -> None:
        self._flowing.set()

    def lose(self, mark: bytes, every: int) -> None:
        """Cut the connection after each *every*-th request with *mark* in it; 0 ends that."""
        self._lose = (mark, every)

    def delay(self, mark: bytes, every: int, seconds: float) -> None:
        """Let each *every*-th request with *mark* in it arrive *seconds* later; 0 ends that."""
        self._delay, self._delay_by = (mark, every), seconds

    def forget(self, idle: float, ending: str) -> None:
        """End new connections after *idle* seconds without data: "fin", "rst" or "silence"."""
        self._idle, self._ending = idle, ending

    def end(self, ending: str) -> None:
        """End open connections, as if they had been idle for too long; see `forget`."""
        if ending == "silence":
            self.deaden()
        elif ending == "fin":
            self.cut()
        else:
            with self._lock:
                ended, self._sockets = self._sockets, set()
            for one in ended:
                with contextlib.suppress(OSError):  # closed already
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
                    one.shutdown(socket.SHUT_RD)  # its thread closes it
            eventually(lambda: all(one.fileno() < 0 for one in ended))

    def deaden(self) -> None:
        with self._lock:
            self._dead |= self._sockets

    def cut(self) -> None:
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            self._flowing.wait()
            with socket.create_connection(("127.0.0.1", self.target)) as server:
                with self._lock:
                    self._sockets |= {client, server}
                self._forward(client, server)
                with self._lock:
                    self._sockets -= {client, server}

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        peers = {client: server, server: client}
        # Not select.select, which knows no descriptor past 1023.
        with selectors.DefaultSelector() as readable:
            for one in peers:
                readable.register(one, selectors.EVENT_READ)
            self._pump(readable, client, peers)

    def _pump(self, readable: selectors.BaseSelector, client: socket.socket, peers: dict) -> None:
        idle = self._idle
        while True:
            ready = readable.select(idle)
            if not ready:
                self._forget(peers)
                if self._ending != "silence":
                    return
                idle = None
            for key, _ in ready:
                source = key.fileobj
                data = source.recv(CHUNK)
                self.held += not self._flowing.is_set()
                self._flowing.wait()
                if not data:
                    return
                if source in self._dead:
                    continue
                if self.slowness:
                    self._over.wait(self.slowness)
                if source is client and self._is_next(data, self._delay):
                    self.delayed += 1
                    self._over.wait(self._delay_by)
                    peers[source].sendall(data)
                    # Wait for the answer, so that the server has read the request before the end.
                    client.sendall(peers[source].recv(CHUNK))
                    continue
                ends = source is client and (self._is_cut(data) or self._is_next(data, self._lose))
                self.cuts += ends  # first: a test that sees what the request did counts at once
                peers[source].sendall(data)
                if ends:
                    return

    def _forget(self, peers: dict) -> None:
        if self._ending == "rst":
            self._reset(peers)
        elif self._ending == "fin":
            for one in peers:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        else:
            self._dead |= set(peers)
        self.forgotten += 1  # last: a test that waits for it uses the link at once

    def _reset(self, sockets: Iterable[socket.socket]) -> None:
        for one in sockets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
            one.close()

    def _is_cut(self, data: bytes) -> bool:
        cut = bool(self.cut_after) and self.cut_after in data
        if cut:
            self.cut_after = None
        return cut

    def _is_next(self, data: bytes, turn: tuple[bytes, int]) -> bool:
        mark, every = turn
        return every > 0 and mark in data and next(self._requests) % every == 0
