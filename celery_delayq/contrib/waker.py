"""Calls a function in a worker's loop when another thread asks for it.

The oldest kombu's hub cannot be called from another thread, so a pipe wakes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ..core.text import logger_of

logger = logger_of(__name__)


class Waker:
    """A way into a worker's loop, if that has a hub.

    Args:
        call: The function; an exception of it would end the worker.
    """

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._hub: Any = None
        self._pipe: tuple[int, int] | None = None

    @property
    def is_there(self) -> bool:
        return self._pipe is not None

    def listen(self, hub: Any) -> None:
        """Listen in a loop that begins, until it is over or :meth:`close` is called."""
        self.close()
        self._hub, self._pipe = hub, os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        hub.add_reader(self._pipe[0], self._heard)

    def wake(self) -> None:
        """Let the function be called soon; from any thread."""
        pipe = self._pipe
        if pipe is None:
            return
        try:
            os.write(pipe[1], b"\0")
        except OSError as error:  # full, so it is awake; or closed
            logger.debug("the worker's loop was not woken: %s", error)

    def close(self) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            self._hub.remove(pipe[0])
            for end in pipe:
                os.close(end)

    def _heard(self, *_: Any) -> None:
        pipe = self._pipe
        if pipe is not None:
            os.read(pipe[0], 4096)
        self._call()
