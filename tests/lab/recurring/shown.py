"""The heading and the tables that the trials print."""

import os
import platform
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import version

from tests.support.redis_programs import redis_binaries


def heading(*more: str) -> str:
    """The day, the machine and the versions."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("celery", "kombu", "redis"))
    return "; ".join(
        [
            time.strftime("%Y-%m-%d"),
            f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
            f"Python {platform.python_version()}, Redis {redis_binaries()[0][0]}, {versions}",
            *more,
        ]
    )


def rows(head: Sequence[str], body: Iterable[Sequence[object]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *body]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
