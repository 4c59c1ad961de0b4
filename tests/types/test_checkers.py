"""mypy and pyright on a user's modules, with Celery's stubs (`celery-types`) and without."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from celery_delayq import signals
from celery_delayq.contrib.rules.face import Rule
from celery_delayq.operations.bulk import Bulk
from tests.readme import stable
from tests.types.checkers import CHECKERS

MODULES = Path(__file__).parent / "modules"
EVERYTHING = MODULES / "everything.py"
#: An owner of attributes in the list of stable names -> the variable for it in `everything.py`.
#: To type checkers a signature is Celery's own: `mistakes.py` has its methods.
VARIABLES = {
    "DelayQ": "delayq",
    "Outcome": "Outcome",
    "ScheduledResult": "result",
    "ScheduledTask": "task",
    "State": "State",
    "check()": "finding",
    "count": "count",
    "edit()": "edits",
    "holder()": "holder",
    "isolated()": "shop",
    "load()": "loaded",
    "misfits": "misfit",
    "preflight()": "flight",
    "reconcile()": "report",
    "first": "case",
    "repair()": "repaired",
    "run_due()": "ran",
    "selection": "selection",
    "task": "bill",
    "task in Django": "mail",
    "undo_all()": "undone",
    "undoable()": "undoable",
}
MEMBER = re.compile(r"([\w ()]+)\.(\w+)(?: = .*)?")
# These are not on the list.
RETURNED = {"bulk": Bulk, "rule": Rule}
ENVIRONMENT = Path(os.environ["DELAYQ_TYPES"]).absolute()
STUBS = {"with stubs": ENVIRONMENT / "bin" / "python", "without stubs": Path(sys.executable)}
MARKER = re.compile(r"# (always|with stubs|without stubs): ([\w-]+(?:, [\w-]+)*)$")


@pytest.fixture(scope="module", params=STUBS)
def stubs(request):
    return request.param


@pytest.fixture(scope="module", params=CHECKERS)
def checker(request, stubs):
    return CHECKERS[request.param](STUBS[stubs], ENVIRONMENT, stubs == "with stubs")


@pytest.fixture(scope="module")
def reports(checker, tmp_path_factory):
    """The checker's reports on a folder that has only the installed package of this project."""
    folder = tmp_path_factory.mktemp("project")
    for module in MODULES.glob("*.py"):
        (folder / module.name).write_bytes(module.read_bytes())
    return checker.reports(folder)


def marked(module, checker, *markers):
    """Line and code of each report that these *markers* in *module* name for this checker."""
    of_pyright = checker.name == "pyright"
    found, named = set(), set()
    for number, line in enumerate(module.read_text().splitlines(), 1):
        marker = MARKER.match(line.strip())
        if marker and marker[1] in markers:
            codes = marker[2].split(", ")
            named |= {code for code in codes if code.startswith("report") is of_pyright}
        elif not marker:
            found |= {(number, code) for code in named}
            named = set()
    return found


@pytest.mark.parametrize("name", sorted(module.name for module in MODULES.glob("*.py")))
def test_a_checker_reports_what_is_wrong_and_nothing_else(reports, checker, stubs, name):
    found = reports[name]
    # Without stubs, pyright's reports change with Celery's code.
    must = marked(MODULES / name, checker, "always", *({stubs} - {"without stubs"}))
    may = marked(MODULES / name, checker, stubs)
    assert {error: found[error] for error in found.keys() - must - may} == {}
    assert must - found.keys() == set()


@pytest.mark.parametrize("where", STUBS)
def test_the_environments_are_what_they_are_called(where):
    look = "import importlib.util as i; print(i.find_spec('celery-stubs') is not None)"
    ran = subprocess.run([STUBS[where], "-c", look], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == str(where == "with stubs")


def public():
    """Each public name, as `everything.py` has it."""
    for line in stable.lines():
        what, name, *_ = *line.split(), ""
        member = MEMBER.fullmatch(line)
        if member and member[1] in VARIABLES:
            yield f"{VARIABLES[member[1]]}.{member[2]}"
        elif what == "error":
            yield f"errors.{name.removesuffix(',')}"
        elif what == "signal" and hasattr(signals, name):
            yield f"signals.{name}"
        elif what in ("import", "setting", "signal") and name.isidentifier():
            yield name
    for variable, owner in RETURNED.items():
        yield from (f"{variable}.{name}" for name in stable._own(owner))


def used(module):
    """The names, attributes and keywords that a module uses."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.keyword):
            yield node.arg


def test_the_checkers_read_each_public_name():
    assert stable.OWNERS.keys() - VARIABLES.keys() == {"signature"}
    missing = {*public()} - {*used(EVERYTHING)}
    assert not missing, f"use them in {EVERYTHING.name}: {', '.join(sorted(missing))}"
