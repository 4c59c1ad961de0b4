"""The leaves: optional parts beside the core, each with one folder and one line here.

    core -----leaf(name)-----> a leaf, on first use
       |-----call(point)-----> the leaves that have something to do there
       |-----commands, steps-> by name; the command line and workers import them
       '-----methods---------> of DelayQ, by name; each is imported on first use
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
# The methods of the operations, as a leaf names its own.
METHODS = {
    "schedule_many": "bulk",
    "edit": "edits",
    "health": "health",
    "free": "pauses",
    "holder": "pauses",
    "pause": "pauses",
    "pauses": "pauses",
    "resume": "pauses",
    "aselect": "selection",
    "select": "selection",
    "status": "status",
}


class Leaf(NamedTuple):
    """One leaf.

    Attributes:
        folder: Its folder in ``contrib``.
        at: The points at which the core calls it.
        commands: The names of its commands of ``celery delayq``, with the module of each.
        worker_step: Its step for workers: ``.module:Class``, ``:Class`` if that is in the
            ``__init__.py``, or empty.
        consumer_step: The same for a worker's consumer.
        methods: The names of the methods that it gives to ``DelayQ``, with the module of each: a
            function there of that name, which takes ``delayq`` first.
    """

    folder: str
    at: tuple[str, ...] = ()
    commands: Mapping[str, str] = MappingProxyType({})
    worker_step: str = ""
    consumer_step: str = ""
    methods: Mapping[str, str] = MappingProxyType({})


_CARE = dict.fromkeys(("check", "doctor", "dump", "load", "reshard", "upgrade"), "commands")
_CARE_METHODS = {"check": "check", "repair": "check", "dump": "dump", "load": "load"}
_HISTORY = {"history": "command"}
_PREFLIGHT = {"preflight": "preflight"}
_RECONCILE_METHODS = {"reconcile": "reconciling", "areconcile": "reconciling"}
_RULES = {"rules": "command"}
_RULES_METHODS = {"every": "every", "rule": "face", "rules": "face"}
_RULES_AT = (SCAN, CONFIGURED, CHECKS, ADVANCED)
_UNDO_METHODS = dict.fromkeys(("undo", "undo_all", "undoable"), "undoing")

LEAVES = {
    "adoption": Leaf("adoption", consumer_step=".adopting:AdoptingStep"),
    "canvas": Leaf("canvas", at=(CONFIGURED,)),
    "care": Leaf("care", commands=_CARE, methods=_CARE_METHODS),
    "cluster": Leaf("cluster"),
    "control": Leaf("control", at=(SET_UP, WORKER, COMMAND_LINE)),
    "copies": Leaf("copies", consumer_step=":GuardingStep"),
    "django": Leaf("django", at=(DJANGO,)),
    "events": Leaf("events", at=(HOOKS, SET_UP)),
    "held": Leaf("held", consumer_step=":HoldingStep"),
    "history": Leaf("history", commands=_HISTORY, methods={"history": "newest"}),
    "metrics": Leaf("metrics", at=(SCAN,), worker_step=":MetricsStep"),
    "preflight": Leaf("preflight", (COMMAND_LINE,), {"preflight": "command"}, methods=_PREFLIGHT),
    "putoff": Leaf("putoff", (SET_UP, CONFIGURED, WORKER), consumer_step=":NotingStep"),
    "reconcile": Leaf("reconcile", at=(CHECKS,), methods=_RECONCILE_METHODS),
    "rules": Leaf("rules", _RULES_AT, _RULES, ".step:RulesStep", methods=_RULES_METHODS),
    "sentinel": Leaf("sentinel"),
    "testing": Leaf("testing"),
    "undo": Leaf("undo", commands={"undo": "command"}, methods=_UNDO_METHODS),
    "unknown": Leaf("unknown", at=(CHECKS,), consumer_step=".net:NetStep"),
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


class Method:
    """A method of ``DelayQ``, as the function that it is once it was imported, on first use."""

    def __init__(self, module: str) -> None:
        self.module = module

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, delayq: object, owner: type) -> Any:
        try:
            function = getattr(import_module(self.module), self._name)
        except ModuleNotFoundError:  # of an extra: to call it raises, to look at all methods not
            return lambda *_, **__: import_module(self.module)
        setattr(self._owner, self._name, function)
        return function.__get__(delayq, owner)


def methods() -> dict[str, Method]:
    """Return the methods that ``DelayQ`` has beside those of the core."""
    places = [(OPERATIONS, METHODS)] if OPERATIONS else []
    places += [(_module(leaf_), dict(leaf_.methods)) for leaf_ in LEAVES.values()]
    return {
        name: Method(f"{place}.{module}") for place, of in places for name, module in of.items()
    }


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
