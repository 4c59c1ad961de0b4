"""The leaves: optional parts beside the kernel, each with one folder and one line here.

    kernel ---leaf(name)-----> a leaf, on first use
       |-----call(point)-----> the leaves that have something to do there
       '-----commands, steps-> by name; the command line and workers import them
    leaves ---import---> the kernel, which imports none of them

The kernel schedules, cancels, reschedules, finds, lists and delivers. The ``__init__.py`` of a leaf
has the functions that the kernel calls by name. ``./tests/run leaves`` removes each leaf in turn,
folder and line, and runs the kernel's tests without it.

Steps on the store's keys stay in ``store``, even if only a leaf uses them: a key has one owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from .errors import NoLeaf

# The points at which the kernel calls leaves; each is the name of a function that takes the app.
SET_UP = "set_up"  # DelayQ(app) is created
CONFIGURED = "configured"  # the app's configuration is read, and delayq_enabled is not False
DJANGO = "with_django"  # DelayQ(app) is created in a Django project
HOOKS = "hooks"  # DelayQ(app) is created; returns Hooks
WORKER = "in_worker"  # a worker starts, and its pool has not forked yet
COMMAND_LINE = "on_command_line"  # Celery's command line begins; takes nothing
SCAN = "beside_scanner"  # the command `scan` starts; returns an object to start and stop, or None


class Leaf(NamedTuple):
    """One leaf.

    Attributes:
        folder: Its folder, as a module of this package.
        at: The points at which the kernel calls it.
        commands: The names of its commands of ``celery delayq``, with the module of each.
        worker_step: The module and class of its step for workers, or empty.
        consumer_step: The same for a worker's consumer.
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
    "reshard": "command_reshard",
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
    "held": Leaf("held", consumer_step="watching:HoldingStep"),
    "history": Leaf("history", commands={"history": "command_history"}),
    "metrics": Leaf("metrics", at=(SCAN,), worker_step="step:MetricsStep"),
    "putoff": Leaf("putoff", at=(SET_UP, CONFIGURED, WORKER), consumer_step="receiving:NotingStep"),
    "sentinel": Leaf("sentinel"),
    "testing": Leaf("contrib.testing"),
    "web": Leaf("web", commands={"web": "command_web"}),
}


def leaf(name: str) -> Any:
    """Import and return a leaf's package.

    Raises:
        NoLeaf: the leaf was removed.
    """
    if name not in LEAVES:
        raise NoLeaf(name)
    return import_module(_module(LEAVES[name]))


def call(point: str, *app: Any) -> list[Any]:
    """Call the leaves that have a function for *point*, and return their answers."""
    return [getattr(leaf(name), point)(*app) for name, one in LEAVES.items() if point in one.at]


def steps() -> list[tuple[str, str]]:
    """List the steps of leaves: the blueprint, and the class's path for Celery to import."""
    return [
        (blueprint, f"{_module(one)}.{step}")
        for one in LEAVES.values()
        for blueprint, step in (("worker", one.worker_step), ("consumer", one.consumer_step))
        if step
    ]


def commands() -> list[str]:
    """List the names of the leaves' commands."""
    return [name for one in LEAVES.values() for name in one.commands]


def command(name: str) -> Any:
    """Import and return a leaf's command; ``None`` if no leaf has one of that name."""
    for one in LEAVES.values():
        if name in one.commands:
            return getattr(import_module(f"{_module(one)}.{one.commands[name]}"), name)
    return None


def _module(one: Leaf) -> str:
    return f"{__package__}.{one.folder}"
