"""A terminal of any width: what is written into it is read from its other end."""

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
    """A terminal; ``theirs`` is its end that a program gets as a file descriptor.

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
        # An end that nobody holds open is an error on Linux.
        with contextlib.suppress(OSError):
            while some := os.read(self._ours, 65536):
                self._parts.append(some)

    def close(self):
        """Close the end of the program, which has to have let go of it; what it wrote."""
        os.close(self.theirs)
        self._reader.join(30)
        assert not self._reader.is_alive()
        os.close(self._ours)
        return b"".join(self._parts).decode().replace("\r\n", "\n")


def lines_of(text):
    """The lines that a reader sees, without colours."""
    return [line.rstrip() for line in _COLOURS.sub("", text).splitlines()]
