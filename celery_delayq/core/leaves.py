"""The leaves: optional parts beside the core, each with one folder and one line here.

    core -----leaf(name)-----> a leaf, on first use
       |-----call(point)-----> the leaves that have something to do there
       '-----commands, steps-> by name; the command line and workers import them
    leaves ---import---> core and operations, which import none of them

The ``__init__.py`` of a leaf has the functions that the core calls by name. ``./tests/run leaves``
removes each leaf in turn, folder and line, and runs the tests without it.

Steps on the store's keys stay in ``store``, even if only a leaf uses them: a key has one owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from .errors import NoLeaf

# The points at which the core calls leaves; each is the name of a function that takes the app.
SET_UP = "set_up"  # DelayQ(app) is created
CONFIGURED = "configured"  # the app's configuration is read, and delayq_enabled is not False
DJANGO = "with_django"  # DelayQ(app) is created in a Django project
HOOKS = "hooks"  # DelayQ(app) is created; returns Hooks
WORKER = "in_worker"  # a worker starts, and its pool has not forked yet
COMMAND_LINE = "on_command_line"  # Celery's command line begins; takes nothing
SCAN = "beside_scanner"  # the command `scan` starts; returns an object to start and stop, or None
CHECKS = "checks"  # `health` or the doctor looks; takes nothing, returns its Checks
ADVANCED = "on_advance"  # a test has moved the clock of an isolated app


FOLDER = "celery_delayq.contrib"
OPERATIONS = "celery_delayq.operations"


class Leaf(NamedTuple):
    """One leaf.

    Attributes:
        folder: Its folder in ``contrib``.
        at: The points at which the core calls it.
        commands: The names of its commands of ``celery delayq``, with the module of each.
        worker_step: Its step for workers: ``.module:Class``, ``:Class`` if that is in the
            ``__init__.py``, or empty.
        consumer_step: The same for a worker's consumer.
        methods: The class of the methods that it gives to ``DelayQ``, in the same form.
    """

    folder: str
    at: tuple[str, ...] = ()
    commands: Mapping[str, str] = MappingProxyType({})
    worker_step: str = ""
    consumer_step: str = ""
    methods: str = ""


_CARE = dict.fromkeys(("check", "doctor", "dump", "load", "reshard", "upgrade"), "commands")
_HISTORY = {"history": "command"}
_RULES = {"rules": "command"}
_RULES_AT = (SCAN, CONFIGURED, CHECKS, ADVANCED)

LEAVES = {
    "adoption": Leaf("adoption", consumer_step=".adopting:AdoptingStep"),
    "canvas": Leaf("canvas", at=(CONFIGURED,)),
    "care": Leaf("care", commands=_CARE, methods=":CareMethods"),
    "cluster": Leaf("cluster"),
    "control": Leaf("control", at=(SET_UP, WORKER, COMMAND_LINE)),
    "copies": Leaf("copies", consumer_step=":GuardingStep"),
    "django": Leaf("django", at=(DJANGO,)),
    "events": Leaf("events", at=(HOOKS, SET_UP)),
    "held": Leaf("held", consumer_step=":HoldingStep"),
    "history": Leaf("history", commands=_HISTORY, methods=":HistoryMethods"),
    "metrics": Leaf("metrics", at=(SCAN,), worker_step=":MetricsStep"),
    "putoff": Leaf("putoff", (SET_UP, CONFIGURED, WORKER), consumer_step=":NotingStep"),
    "rules": Leaf("rules", _RULES_AT, _RULES, ".step:RulesStep", methods=":RuleMethods"),
    "sentinel": Leaf("sentinel"),
    "testing": Leaf("testing"),
    "undo": Leaf("undo", commands={"undo": "command"}, methods=":UndoMethods"),
    "web": Leaf("web", commands={"web": "command"}),
}


def leaf(name: str) -> Any:
    """Import and return a leaf's package.

    Raises:
        NoLeaf: the leaf was removed.
    """
    if name not in LEAVES:
        raise NoLeaf(name)
    return import_module(_module(LEAVES[name]))


def operation(name: str) -> Any:
    """Import and return a module of the operations, which stand above the core."""
    return import_module(f"{OPERATIONS}.{name}")


def call(point: str, *app: Any) -> list[Any]:
    """Call the leaves that have a function for *point*, and return their answers."""
    return [getattr(leaf(name), point)(*app) for name, leaf_ in LEAVES.items() if point in leaf_.at]


def steps() -> list[tuple[str, str]]:
    """List the steps of leaves: the blueprint, and the class's path for Celery to import."""
    return [
        (blueprint, f"{_module(leaf_)}{step}")
        for leaf_ in LEAVES.values()
        for blueprint, step in (("worker", leaf_.worker_step), ("consumer", leaf_.consumer_step))
        if step
    ]


def methods() -> list[type]:
    """Import and return the classes whose methods ``DelayQ`` has beside those of the core."""
    paths = [f"{OPERATIONS}.methods:Operations"] if OPERATIONS else []
    paths += [f"{_module(leaf_)}{leaf_.methods}" for leaf_ in LEAVES.values() if leaf_.methods]
    found = (path.partition(":") for path in paths)
    return [getattr(import_module(module), name) for module, _, name in found]


def commands() -> list[str]:
    """List the names of the leaves' commands."""
    return [name for leaf_ in LEAVES.values() for name in leaf_.commands]


def command(name: str) -> Any:
    """Import and return a leaf's command; ``None`` if no leaf has one of that name."""
    for leaf_ in LEAVES.values():
        if name in leaf_.commands:
            return getattr(import_module(f"{_module(leaf_)}.{leaf_.commands[name]}"), name)
    return None


def _module(leaf_: Leaf) -> str:
    return f"{FOLDER}.{leaf_.folder}"
