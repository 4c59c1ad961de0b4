"""What this package leans on in its libraries is there; what is not is told in one sentence."""

import ast
import inspect
import subprocess
import sys
from functools import reduce
from importlib import import_module, metadata
from pathlib import Path
from types import FunctionType
from unittest import mock

import amqp
import pytest
from celery import Celery
from celery.app.amqp import AMQP
from celery.app.task import Task

import celery_delayq
from celery_delayq import DelayQ
from celery_delayq.errors import LibraryChanged
from celery_delayq.integration import contract
from celery_delayq.integration.contract import LEANINGS, TRIED
from celery_delayq.libraries import Leaning, mentions, takes, takes_at

pytestmark = pytest.mark.libraries

PACKAGE = Path(celery_delayq.__file__).parent
SEND_TASK = "celery.app.base:Celery.send_task"  # need not delay anything in the broker


@pytest.fixture(autouse=True)
def _anew(monkeypatch):
    """As in a process that has made no DelayQ yet, with all modules loaded."""
    for leaning in LEANINGS:
        import_module(leaning.module)
    monkeypatch.setattr(contract, "_settled", set())


def owners_of(leaning):
    """The classes, or the module, that define the name."""
    *path, name = leaning.where.partition(":")[2].split(".")
    owner = reduce(getattr, path, import_module(leaning.module))
    mro = [one for one in getattr(owner, "__mro__", (owner,)) if one is not object]
    return [one for one in mro if name in vars(one)], name


def test_all_of_it_is_there_and_what_is_expected():
    assert [problem for one in LEANINGS if (problem := one.problem())] == []


@pytest.mark.parametrize(
    "where",
    [
        "celery.app.base:Celery.amqp",
        "celery.app.amqp:task_message",
        "redis:Connection.send_command",
    ],
)
def test_what_is_gone_is_said_in_one_sentence(make_app, monkeypatch, where):
    app = make_app()
    [leaning] = [one for one in LEANINGS if one.where == where]
    owners, name = owners_of(leaning)
    for owner in owners:
        monkeypatch.delattr(owner, name)

    with pytest.raises(LibraryChanged) as raised:
        DelayQ(app)

    (problem,) = [one for one in raised.value.problems if one.startswith(f"{where} ")]
    installed = ", ".join(f"{name} {metadata.version(name)}" for name in TRIED)
    tried = ", ".join(f"{name} {old} to {new}" for name, (old, new) in TRIED.items())
    assert problem in str(raised.value)
    assert str(raised.value).endswith(
        f": installed are {installed}; celery_delayq was tried with {tried}; "
        "install one of these, or a later celery_delayq"
    )


def _other(self, one, two, three, *, more):
    pass


def something_else(found):
    """Of the library still, but not what it was."""
    if not isinstance(found, FunctionType):
        return object()
    file = inspect.unwrap(found).__code__.co_filename
    return FunctionType(_other.__code__.replace(co_filename=file), {})


def test_what_is_another_thing_now_is_said_as_well(monkeypatch):
    expected = [one for one in LEANINGS if one.expects is not Leaning.expects]
    unnoticed = []
    for leaning in expected:
        [owner, *_], name = owners_of(leaning)
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, something_else(getattr(owner, name)))
            if not leaning.problem().startswith(f"{leaning.where} "):
                unnoticed.append(leaning.where)

    assert len(expected) > 50
    assert unnoticed == [SEND_TASK]


def defined(source):
    names = {}
    exec(source, names)
    return names["f"]


@pytest.mark.parametrize(
    ("source", "expects", "problem"),
    [
        ("def f(self, a): pass", takes("a"), ""),
        ("def f(self, *rest): pass", takes("a", "b"), ""),
        ("def f(self, a=1, b=2): pass", takes("a"), ""),
        ("def f(self, a=1, *, b=2): pass", takes("b="), ""),
        ("def f(self, **more): pass", takes("b="), ""),
        ("def f(self): pass", takes("a"), "does not take 1 arguments"),
        ("def f(self, a): pass", takes("a", "b="), "does not take b"),
        ("def f(self, a, b, c): pass", takes("a", "c="), "wants b as well"),
        ("def f(self, a, *, b): pass", takes("a"), "wants b as well"),
        ("def f(self, a, b): pass", takes_at(1, "b"), ""),
        ("def f(self, b, a): pass", takes_at(1, "b"), "does not take b as argument 2"),
        ("def f(self): self.x = {'y': 1}", mentions("x", "y"), ""),
        ("def f(self): self.x = 1", mentions("x", "y"), "does not use y"),
        ("f = 1", takes(), "cannot be called"),
    ],
)
def test_a_signature_is_looked_at_as_a_call_would_meet_it(source, expects, problem):
    assert expects(defined(source)) == problem


def test_what_somebody_wrapped_is_taken_for_what_it_was(make_app, monkeypatch):
    def wrapper(*args):
        pass

    app = make_app()
    monkeypatch.setattr(Celery, "send_task", wrapper)
    monkeypatch.setattr(amqp.Channel, "_on_basic_ack", wrapper)
    monkeypatch.setattr(amqp.Channel, "confirm_select", mock.Mock())
    monkeypatch.setattr(Task, "apply_async", mock.Mock())
    monkeypatch.setattr(AMQP, "as_task_v2", mock.MagicMock())

    DelayQ(app).close()


def test_it_is_looked_at_once_in_a_process(monkeypatch, make_app):
    contract.check()
    monkeypatch.delattr("kombu.Connection.collect")

    DelayQ(make_app()).close()


WITHOUT = """
import sys
from functools import reduce
from functools import reduce
from importlib import import_module
import celery, kombu, redis

for where in sys.argv[1:]:
    module, _, name = where.partition(":")
    path, _, name = name.rpartition(".")
    owner = reduce(getattr, filter(None, path.split(".")), import_module(module))
    for one in getattr(owner, "__mro__", [owner]):
        if one is not object and name in vars(one):
            delattr(one, name)

from celery_delayq import DelayQ
from celery_delayq.errors import LibraryChanged
try:
    DelayQ(celery.Celery())
except LibraryChanged as error:
    print(*[one.partition(" ")[0] for one in error.problems])
"""

# The names of errors are public, and what a command leans on is loaded with it.
IMPORTED = ("redis:exceptions", "celery.bin.base:")


def test_nothing_that_is_leaned_on_is_needed_to_import_the_package():
    names = [one.where for one in LEANINGS if not one.where.startswith(IMPORTED)]

    innermost_first = sorted(names, key=len, reverse=True)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *innermost_first],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr == ""
    assert set(done.stdout.split()) == set(names)


SET_ON_RESULTS = {"_services", "_due_ms", "_existed", "_replicas"}


def _privates(tree):
    """Private attributes of anything but ``self``; and the private names that a module defines."""
    used, own = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            of = node.value.id if isinstance(node.value, ast.Name) else ""
            if of not in ("self", "cls") and not node.attr.startswith("__"):
                used.add(node.attr)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            own.add(node.name)
    return used, own


def test_every_private_name_that_is_used_is_in_the_list():
    sources = {path: path.read_text("utf-8") for path in PACKAGE.glob("**/*.py")}
    found = [_privates(ast.parse(source)) for source in sources.values()]
    used, own = (set().union(*names) for names in zip(*found, strict=True))
    lists = [Path(contract.__file__), *PACKAGE.glob("**/libraries.py")]
    listed = " ".join(sources[path] for path in lists)

    assert "_lookup" in used
    unlisted = {name for name in used - own - SET_ON_RESULTS if f'{name}"' not in listed}
    assert unlisted == set()


@pytest.mark.parametrize("name", TRIED)
def test_the_suite_runs_on_no_version_older_than_those_that_were_tried(name):
    """A newer one is no error: the other tests here say whether it is still as expected."""

    def numbers(version):
        return tuple(map(int, version.split(".")[:2]))

    assert numbers(TRIED[name][0]) <= numbers(metadata.version(name))
