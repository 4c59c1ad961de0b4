"""A real `celery worker` in a process of its own."""

import itertools
import os
from collections.abc import Mapping
from pathlib import Path

from tests.support.forked import PythonProcess

ROOT = Path(__file__).parents[2]
# Mingling costs a second at each start, and the workers of tests do not need each other.
QUIET = ("--without-gossip", "--without-mingle")
READY = r"\bready\.$"

_numbers = itertools.count(1)


class WorkerProcess(PythonProcess):
    """`celery -A module worker`, under a node name of its own.

    Args:
        module: The argument of ``-A``; found from the project's folder.
        options: More arguments of ``worker``, such as ``"-P", "solo"``.
        env: Variables on top of this process's own.
        log: The file for its output.
        plain: Whether it has to be started plainly, and not as a fork.
    """

    def __init__(
        self,
        module: str,
        *options: str,
        log: Path,
        env: Mapping[str, str] | None = None,
        plain: bool = False,
    ):
        self.name = f"w{next(_numbers)}-{os.getpid()}@localhost"
        named = ("worker", "-l", "INFO", "-n", self.name)
        super().__init__(
            *("-m", "celery", "-A", module, *named, *QUIET, *options),
            log=log,
            env=env or {},
            cwd=ROOT,
            plain=plain,
        )

    def wait_ready(self, timeout: float = 30) -> "WorkerProcess":
        self.wait_log(READY, timeout)
        return self
