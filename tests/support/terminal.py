"""A terminal of any width: a test reads the program's output from its other end."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import termios
import threading

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """A terminal; ``theirs`` is the end for the program, a file descriptor.

    Args:
        columns: How wide it is.
    """

    def __init__(self, columns):
        self.columns = columns
        self._ours, self.theirs = pty.openpty()
        size = struct.pack("HHHH", 24, columns, 0, 0)
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, size)
        self._parts = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        # On Linux, reading fails once no process holds the other end open.
        with contextlib.suppress(OSError):
            while some := os.read(self._ours, 65536):
                self._parts.append(some)

    @property
    def so_far(self):
        """The output until now."""
        return b"".join(self._parts).decode(errors="replace")

    def type(self, text):
        """Press keys."""
        os.write(self._ours, text.encode())

    def close(self):
        """Close the program's end, which the program must have left; return its output."""
        os.close(self.theirs)
        self._reader.join(30)
        assert not self._reader.is_alive()
        os.close(self._ours)
        return b"".join(self._parts).decode().replace("\r\n", "\n")


def lines_of(text):
    """The lines that a reader sees, without colours."""
    return [line.rstrip() for line in _COLOURS.sub("", text).splitlines()]
