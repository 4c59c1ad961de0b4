"""The core knows leaves by their names, and imports each only when it is used."""

import inspect
import subprocess
import sys
from importlib import import_module
from unittest.mock import create_autospec

import pytest
from celery import Celery

from celery_delayq import DelayQ
from celery_delayq.core import leaves
from celery_delayq.errors import NoLeaf
from tests.types import face

NOT_POINTS = ("FOLDER", "OPERATIONS")
POINTS = {
    one
    for name, one in vars(leaves).items()
    if name.isupper() and isinstance(one, str) and name not in NOT_POINTS
}
# These change something in an app as soon as it has a DelayQ.
AT_ONCE = {"control", "events", "putoff"}


@pytest.mark.parametrize("name", leaves.LEAVES)
def test_a_leaf_has_all_that_its_line_says(name):
    one = leaves.LEAVES[name]

    assert set(one.at) <= POINTS
    assert name == "django" or all(callable(getattr(leaves.leaf(name), at)) for at in one.at)
    assert [leaves.command(command).name for command in one.commands] == [*one.commands]
    for step in filter(None, (one.worker_step, one.consumer_step)):
        module, _, kind = step.partition(":")
        assert kind in vars(import_module(f"{leaves.FOLDER}.{one.folder}{module}"))


def test_a_leaf_that_was_taken_out_is_missed_by_its_name(monkeypatch):
    monkeypatch.delitem(leaves.LEAVES, "canvas")
    with pytest.raises(NoLeaf) as caught:
        leaves.leaf("canvas")
    assert str(caught.value) == (
        "this celery_delayq has no 'canvas': it is not in celery_delayq/core/leaves.py"
    )


def test_a_method_is_a_function_that_its_own_module_has():
    for name, method in leaves.methods().items():
        function = getattr(import_module(method.module), name)
        assert getattr(DelayQ, name) is function
        assert next(iter(inspect.signature(function).parameters)) == "delayq"


def test_a_double_of_the_class_has_the_signature_of_each_method():
    delayq = create_autospec(DelayQ)(Celery(broker="redis://"))
    delayq.undo("a", now=True)
    delayq.undo.assert_called_once_with("a", now=True)
    with pytest.raises(TypeError):
        delayq.undo_all()


def test_a_double_of_one_method_finds_it_unused():
    # mock takes what a class itself has as it stands, and asks only for what it inherits.
    assert vars(DelayQ).keys() & leaves.methods().keys() == set()


def test_only_a_call_misses_the_package_of_a_method_that_needs_one():
    program = (
        "import sys; sys.modules['cronsim'] = None; from unittest.mock import create_autospec\n"
        f"{APP}; create_autospec(DelayQ)\n"
        "try: delayq.rules()\n"
        "except ModuleNotFoundError as error: assert error.name == 'cronsim'\n"
        "else: assert False\n"
    )
    loaded_after(program)


def test_type_checkers_see_the_methods_of_each_leaf():
    text = face.FACE.read_text("utf-8")
    assert text == face.written(), "write it anew: python -m tests.types.face"


def loaded_after(program):
    """The leaves that a process has imported after these statements."""
    code = f"import sys; from celery import Celery; {program}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = {f"{leaves.FOLDER}.{one.folder}": name for name, one in leaves.LEAVES.items()}
    return {names[name] for name in done.stdout.split() if name in names}


APP = "from celery_delayq import DelayQ; delayq = DelayQ(Celery(broker='redis://'))"


@pytest.mark.parametrize(
    ("program", "loaded"),
    [
        ("import celery_delayq.operations.cli", {"control", "preflight"}),
        ("import celery_delayq.contrib.pytest", set()),
        (APP, AT_ONCE),
        (f"{APP}; delayq.scanner()", AT_ONCE | {"canvas", "rules"}),
        (f"{APP}; delayq.dump()", AT_ONCE | {"care"}),
        (f"{APP}; delayq.history(0)", AT_ONCE | {"canvas", "history", "rules"}),
        ("import celery_delayq.contrib.metrics", {"metrics"}),
    ],
)
def test_a_leaf_is_imported_when_it_is_used(program, loaded):
    assert loaded_after(program) == loaded
