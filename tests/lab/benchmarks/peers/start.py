"""Start a peer's driver in an environment of the peer's own, and read its result."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.benchmarks.environments import python_with
from tests.support.worker import ROOT

FOLDER = Path(__file__).parent
TIMEOUT = 300


@dataclass(frozen=True)
class PythonPeer:
    """A driver ``peers/<name>.py``, and what its environment needs."""

    name: str
    requirements: tuple[str, ...]

    def command(self, cache: Path) -> list[str]:
        python = python_with(cache, self.name, *self.requirements)
        return [python, "-m", f"tests.lab.benchmarks.peers.{self.name}"]


@dataclass(frozen=True)
class NodePeer:
    """A driver ``peers/<name>.mjs``, and the packages that npm installs for it."""

    name: str
    requirements: tuple[str, ...]

    def command(self, cache: Path) -> list[str]:
        node, npm = shutil.which("node"), shutil.which("npm")
        if not node or not npm:
            raise FileNotFoundError("node and npm are not on the PATH")
        folder = cache.absolute() / self.name
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "whole").exists():
            quiet = ("--silent", "--no-audit", "--no-fund")
            subprocess.run([npm, "install", *quiet, *self.requirements], cwd=folder, check=True)
            (folder / "whole").touch()
        # Node looks for modules beside the file that imports them.
        driver = shutil.copy(FOLDER / f"{self.name}.mjs", folder)
        return [node, str(driver)]


PEERS = (
    PythonPeer("longterm", ("celery-longterm-scheduler==1.3.1", "celery[redis]==5.7.0")),
    PythonPeer("textbook", ("redis>=5",)),
    PythonPeer("rq", ("rq==2.12.0",)),
    PythonPeer("huey", ("huey==3.5.4", "redis>=5")),
    NodePeer("bullmq", ("bullmq@6.7.0", "ioredis@5")),
)


def ask(command: list[str], url: str, *action: object) -> dict[str, Any]:
    """Run one action to its end."""
    arguments = [*command, url, *map(str, action)]
    ran = subprocess.run(
        arguments, cwd=ROOT, check=False, timeout=TIMEOUT, capture_output=True, text=True
    )
    if ran.returncode:
        raise RuntimeError(f"{arguments} ended with {ran.returncode}:\n{ran.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


@contextmanager
def idling(command: list[str], url: str, seconds: int) -> Iterator[None]:
    """Run the process that moves due tasks, while it has nothing to do."""
    arguments = [*command, url, "idle", str(seconds)]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            process.stdout.readline()
            yield
        finally:
            process.wait(TIMEOUT)
