"""The leaves: what stands beside the kernel, each with one folder, and with one line here.

    kernel ---leaf(name)-----> a leaf, when something of it is used
       |-----call(point)-----> the leaves that have something to do there
       '-----commands, steps-> by their names; the command line and workers import them
    leaves ---import---> the kernel, which imports none of them

The kernel schedules, cancels, reschedules, finds, lists and hands over. A leaf's package, its
``__init__.py``, has the functions that the kernel calls by name. ``./tests/run leaves`` takes out
each leaf in turn, folder and line, and runs the kernel's tests without it.

Steps on the store's keys stay in ``store``, whichever leaf takes them: a key has one owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from .errors import NoLeaf

# Where the kernel calls leaves; each is the name of a function, which takes the app.
SET_UP = "set_up"  # DelayQ(app) is made
CONFIGURED = "configured"  # the app's configuration is read, and delayq_enabled is not False
DJANGO = "with_django"  # DelayQ(app) is made in a Django project
HOOKS = "hooks"  # DelayQ(app) is made; returns Hooks
WORKER = "in_worker"  # a worker starts, and its pool has not forked yet
COMMAND_LINE = "on_command_line"  # Celery's command line begins; takes nothing
SCAN = "beside_scanner"  # the command `scan` starts; returns what starts and stops, or None


class Leaf(NamedTuple):
    """One leaf.

    Attributes:
        folder: Where it is, as a module of this package.
        at: The points at which the kernel calls it.
        commands: Its commands of ``celery delayq``, by name, and the module of each.
        worker_step: Its step of a worker, by the module and the class; or nothing.
        consumer_step: Its step of a worker's consumer.
    """

    folder: str
    at: tuple[str, ...] = ()
    commands: Mapping[str, str] = MappingProxyType({})
    worker_step: str = ""
    consumer_step: str = ""


_CARE = {
    "check": "command_check",
    "doctor": "command_doctor",
    "dump": "command_dump",
    "load": "command_dump",
}

LEAVES = {
    "adoption": Leaf("adoption", consumer_step="adopting:AdoptingStep"),
    "canvas": Leaf("canvas", at=(CONFIGURED,)),
    "care": Leaf("care", commands=_CARE),
    "cluster": Leaf("cluster"),
    "control": Leaf("control", at=(SET_UP, WORKER, COMMAND_LINE)),
    "copies": Leaf("copies", consumer_step="guard:GuardingStep"),
    "django": Leaf("contrib.django", at=(DJANGO,)),
    "events": Leaf("events", at=(HOOKS, SET_UP)),
    "history": Leaf("history", commands={"history": "command_history"}),
    "metrics": Leaf("metrics", at=(SCAN,), worker_step="step:MetricsStep"),
    "putoff": Leaf("putoff", at=(SET_UP, CONFIGURED, WORKER)),
    "sentinel": Leaf("sentinel"),
    "testing": Leaf("contrib.testing"),
}


def leaf(name: str) -> Any:
    """A leaf's package, imported now.

    Raises:
        NoLeaf: it was taken out.
    """
    if name not in LEAVES:
        raise NoLeaf(name)
    return import_module(_module(LEAVES[name]))


def call(point: str, *app: Any) -> list[Any]:
    """Call the leaves that have something to do at *point*, and return their answers."""
    return [getattr(leaf(name), point)(*app) for name, one in LEAVES.items() if point in one.at]


def steps() -> list[tuple[str, str]]:
    """The steps of leaves: the blueprint, and the class as Celery imports it."""
    return [
        (blueprint, f"{_module(one)}.{step}")
        for one in LEAVES.values()
        for blueprint, step in (("worker", one.worker_step), ("consumer", one.consumer_step))
        if step
    ]


def commands() -> list[str]:
    """The names of the commands that leaves have."""
    return [name for one in LEAVES.values() for name in one.commands]


def command(name: str) -> Any:
    """A leaf's command, imported now; ``None`` if no leaf has one of that name."""
    for one in LEAVES.values():
        if name in one.commands:
            return getattr(import_module(f"{_module(one)}.{one.commands[name]}"), name)
    return None


def _module(one: Leaf) -> str:
    return f"{__package__}.{one.folder}"
