"""Everything that the page "Versions" promises, as the code has it: one thing a line.

    code --lines--> now <--test_stable--> stable.txt, frozen: a line that is gone is a break

python -m tests.readme.stable    freezes it anew

A parameter has its place, unless it is given by name, and its default. The stored format is frozen
in ``tests/format``.
"""

from __future__ import annotations

import ast
import enum
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from importlib.util import find_spec
from inspect import Parameter
from pathlib import Path
from textwrap import dedent
from typing import Any

import click
from celery.canvas import Signature
from celery.worker.control import Panel

import celery_delayq
from celery_delayq import DelayQ, DelayQTask, ScheduledResult, ScheduledTask, errors, signals
from celery_delayq.contrib import metrics, pytest, testing, web
from celery_delayq.contrib.care import commands
from celery_delayq.contrib.care.check import Finding, Repaired
from celery_delayq.contrib.care.doctor import Line
from celery_delayq.contrib.care.load import Loaded
from celery_delayq.contrib.control import panel
from celery_delayq.contrib.django import DelayQDjangoTask
from celery_delayq.contrib.history import command as command_history
from celery_delayq.contrib.metrics.names import metrics as all_metrics
from celery_delayq.contrib.preflight import command as command_preflight
from celery_delayq.contrib.preflight.preflight import Misfit, Preflight
from celery_delayq.contrib.reconcile.report import Case, Reconciled
from celery_delayq.contrib.rules import command, importing
from celery_delayq.contrib.testing.isolation import VARIABLE
from celery_delayq.contrib.undo import command as command_undo
from celery_delayq.contrib.undo.undoing import Undoable, Undone
from celery_delayq.core.integration.apply_async import install
from celery_delayq.core.message import headers
from celery_delayq.core.scheduling.options import OPTIONS, TaskOptions
from celery_delayq.core.settings import SETTINGS
from celery_delayq.core.store.counts import Counts, Pause
from celery_delayq.core.store.lookup import KeyHolder
from celery_delayq.core.tasks.changing import Changes
from celery_delayq.core.tasks.scheduled_task import facts_of
from celery_delayq.operations.cli import delayq, operate
from celery_delayq.operations.queues import QueueCounts
from celery_delayq.operations.selection import Edits, Released, RewritableSelection
from celery_delayq.operations.status import Status, counts_facts

FROZEN = Path(__file__).with_name("stable.txt")

_COUNT = "bulk uncertain behind in_flight unreadable outstanding is_complete"
_TASK = "delay_until delay_for adelay_until adelay_for defer put_offs"
#: What the list calls a class -> the class, and those of its names that are stable.
OWNERS = {
    "count": (Released, f"{_COUNT} canvases beyond dead"),
    "edit()": (Edits, f"{_COUNT} first of_rules refused why"),
    "undo_all()": (Undone, "done refused lost reasons"),
    "undoable()": (Undoable, "id when bulk"),
    "holder()": (KeyHolder, "key id state until delivered changed said_by delivery"),
    "check()": (Finding, "kind id sentence repair"),
    "repair()": (Repaired, "what reason"),
    "load()": (Loaded, "loaded here left skipped refused unreadable"),
    "preflight()": (Preflight, "misfits problems tasks rules dead"),
    "misfits": (
        Misfit,
        "task reason where level count first_due id sentence advice is_problem",
    ),
    "reconcile()": (
        Reconciled,
        (
            "tag dry_run remembers most counts first rows is_complete is_stopped kept bulk "
            "warnings scheduled changed cancelled unchanged refused drift remaining"
        ),
    ),
    "first": (Case, "key why place id error"),
    "isolated()": (testing.IsolatedDelayQ, "advance now scheduled run_due worker"),
    "run_due()": (testing.RanTask, "id task args kwargs state value get traceback"),
    "task": (DelayQTask, _TASK),
    "signature": (Signature, _TASK),
    "task in Django": (DelayQDjangoTask, "delay_until_on_commit delay_for_on_commit"),
}
#: Classes of which every public name is stable, but `services`.
WHOLE = {
    **{one.__name__: one for one in (DelayQ, ScheduledResult, ScheduledTask)},
    "selection": RewritableSelection,
}
CALLED = {
    "DelayQ": DelayQ,
    "Defer": celery_delayq.Defer,
    "Item": celery_delayq.Item,
    "contrib.metrics.Collector": metrics.Collector,
    "contrib.metrics.watch": metrics.watch,
    "contrib.testing.isolated": testing.isolated,
    "contrib.web.wsgi": web.wsgi,
}
#: A command -> what makes the objects of its ``--json``: functions that name fields, dataclasses.
JSON = {
    "check": (commands._facts_of, commands.Check._tell),
    "doctor": (Line,),
    "health": (operate.health.callback,),
    "history": (command_history._event_facts,),
    "list": (facts_of,),
    "preflight": (command_preflight.facts_of,),
    "rules": (command._facts, importing._facts),
    "status": (Status.facts, Status._of_queues, Pause, QueueCounts),
    "undo": (command_undo._list,),
}
URLS = "celery_delayq.contrib.web.django.urls"  # to be imported in a Django project alone
SIGNALS = {name: getattr(signals, name) for name in signals.__all__}
HEADERS = (
    headers.DUE_HEADER,
    headers.ATTEMPT_HEADER,
    headers.REDELIVERED_HEADER,
    headers.PUT_OFFS_HEADER,
)

_KEYWORDS = {"Unpack[TaskOptions]": TaskOptions, "Unpack[Changes]": Changes}
_PLAIN = (bool, int, float, str, tuple, type(None))  # a default of another kind has no plain text


def lines() -> list[str]:
    """Return every stable thing, sorted."""
    install()
    found = {
        *_names(),
        *_errors(),
        *_signals(),
        *_metrics(),
        *_attributes(),
        *(f"option {name}" for name in OPTIONS),
        *(f"header {name}" for name in HEADERS),
        *(f"setting {one.key} = {one.default!r} {one.unit}" for one in SETTINGS),
        *(f"remote command {name}" for name in Panel.data if name in vars(panel)),
        *_plugin(),
        *_commands(delayq, "celery delayq"),
        *_json(),
    }
    return sorted(found)


def _names() -> Iterator[str]:
    for name in (*celery_delayq.__all__, "ScannerStep"):
        one = getattr(celery_delayq, name)
        yield f"import {name}"
        if issubclass(one, enum.Enum):
            yield from (f"{name}.{member.name} = {member.value!r}" for member in one)
    for name, one in CALLED.items():
        yield f"import {name}"
        yield from _parameters(name, inspect.signature(one).parameters.values())
    for called, owner in WHOLE.items():
        for name in _own(owner) - {"services"}:
            yield from _member(f"{called}.{name}", getattr(owner, name, None))
    if find_spec(URLS):
        yield f"import {URLS}"


def _errors() -> Iterator[str]:
    for name, one in vars(errors).items():
        if inspect.isclass(one) and issubclass(one, errors.DelayQError):
            yield from (f"error {name}, a {base.__name__}" for base in one.__bases__)


def _signals() -> Iterator[str]:
    for name, one in {**SIGNALS, "page_changed": web.page_changed}.items():
        yield f"signal {name}"
        yield from (f"signal {name}({brings})" for brings in one.providing_args)


def _metrics() -> Iterator[str]:
    for one in all_metrics():
        yield f"metric {one.exposed}, a {one.kind}"
        yield from (f"metric {one.exposed}{{{label}}}" for label in one.labels)
        yield from (f'metric {one.exposed}{{{one.label}="{value}"}}' for value in one.values)


def _attributes() -> Iterator[str]:
    for called, (owner, names) in OWNERS.items():
        for name in {*names.split()} & {*dir(owner), *_own(owner)}:
            yield from _member(f"{called}.{name}", getattr(owner, name, None))


def _plugin() -> Iterator[str]:
    source = inspect.getsource(pytest)
    for name in re.findall(r'\.add(?:option|ini)\(\s*"([\w-]+)"', source):
        yield f"pytest option {name}"
    for name in re.findall(r"^def (delayq\w*)", source, re.MULTILINE):
        yield f"pytest fixture {name}"
    yield f"variable {VARIABLE}"


def _commands(command: click.Command, path: str) -> Iterator[str]:
    yield path
    for one in command.params:
        yield from (f"{path} {name}" for name in (*one.opts, *one.secondary_opts))
    if isinstance(command, click.Group):
        for name in command.list_commands(None):
            yield from _commands(command.get_command(None, name), f"{path} {name}")


def _json() -> Iterator[str]:
    for name, makers in JSON.items():
        for field in (one for maker in makers for one in _fields(maker)):
            yield f"celery delayq {name} --json, {field}"
    for field in counts_facts(Counts(*[0] * 9)):
        yield f"celery delayq status --json, {field}"


def _fields(maker: type | Callable[..., Any]) -> Iterator[str]:
    if is_dataclass(maker):
        yield from (field.name for field in fields(maker))
        return
    for node in ast.walk(ast.parse(dedent(inspect.getsource(maker)))):
        if isinstance(node, ast.Dict):
            yield from (key.value for key in node.keys if isinstance(key, ast.Constant))


def _own(owner: type) -> set[str]:
    """The public names of the package's classes, with the attributes that a docstring describes."""
    bases = [base for base in owner.__mro__ if base.__module__.startswith("celery_delayq")]
    given = {name: one for base in bases for name, one in vars(base).items()}
    fields = {name for base in bases for name in inspect.get_annotations(base)}
    texts = [inspect.cleandoc(base.__doc__ or "") for base in bases]
    told = {name for text in texts for name in re.findall(r"^    (\w+): ", text, re.MULTILINE)}
    found = {name for name, one in given.items() if not isinstance(one, classmethod)}
    return {name for name in found | fields | told if not name.startswith("_")}


def _member(name: str, one: Any) -> Iterator[str]:
    yield name
    if callable(one) and one.__module__.startswith("celery_delayq"):
        _, *given = inspect.signature(one).parameters.values()  # the first one is the object
        yield from _parameters(name, given)


def _parameters(name: str, given: Any) -> Iterator[str]:
    for place, one in enumerate(given, 1):
        if one.annotation in _KEYWORDS:
            yield from (f"{name}({each}=…)" for each in _KEYWORDS[one.annotation].__annotations__)
        else:
            yield f"{name}({_parameter(place, one)})"


def _parameter(place: int, one: Parameter) -> str:
    bare = str(one.replace(annotation=Parameter.empty, default=Parameter.empty))
    has_place = one.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    default = repr(one.default) if isinstance(one.default, _PLAIN) else "…"
    return f"{place} " * has_place + bare + f"={default}" * (one.default is not Parameter.empty)


if __name__ == "__main__":
    FROZEN.write_text("\n".join([*lines(), ""]), "utf-8")
