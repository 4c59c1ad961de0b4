"""The kernel knows leaves by their names, and imports each only when it is used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import celery_delayq
from celery_delayq import leaves
from celery_delayq.errors import NoLeaf

PACKAGE = Path(celery_delayq.__file__).parent
PROJECT = PACKAGE.parent / "pyproject.toml"
FOLDERS = {one.folder.partition(".")[0] for one in leaves.LEAVES.values()}
NOT_POINTS = ("_CARE", "LEAVES")
POINTS = {one for name, one in vars(leaves).items() if name.isupper() and name not in NOT_POINTS}
# These change something in an app as soon as it has a DelayQ.
AT_ONCE = {"control", "events", "putoff"}


def imports_at_run_time(path):
    """The package's modules that a file imports, except those only for type checkers."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    package = path.relative_to(PACKAGE).parts[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) + 1 - node.level]
            yield from (".".join((*base, node.module or one.name)) for one in node.names)


def test_the_kernel_imports_no_leaf():
    found = [
        (str(path.relative_to(PACKAGE)), name)
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in FOLDERS
        for name in imports_at_run_time(path)
        if name.partition(".")[0] in FOLDERS
    ]

    assert found == []


def test_the_contract_of_layers_has_each_leaf_above_the_kernel():
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has none")

    contracts = tomllib.loads(PROJECT.read_text("utf-8"))["tool"]["importlinter"]["contracts"]

    [layers] = [one["layers"] for one in contracts if one["type"] == "layers"]

    assert set(layers[0].split(" | ")) == FOLDERS
    assert layers[1] == "cli"


@pytest.mark.parametrize("name", leaves.LEAVES)
def test_a_leaf_has_all_that_its_line_says(name):
    one = leaves.LEAVES[name]

    assert set(one.at) <= POINTS
    assert name == "django" or all(callable(getattr(leaves.leaf(name), at)) for at in one.at)
    assert [leaves.command(command).name for command in one.commands] == [*one.commands]
    for step in filter(None, (one.worker_step, one.consumer_step)):
        module, _, kind = step.partition(":")
        assert f"class {kind}(" in (PACKAGE / one.folder / f"{module}.py").read_text("utf-8")


def test_a_leaf_that_was_taken_out_is_missed_by_its_name(monkeypatch):
    monkeypatch.delitem(leaves.LEAVES, "canvas")

    with pytest.raises(NoLeaf) as caught:
        leaves.leaf("canvas")

    assert str(caught.value) == (
        "this celery_delayq has no 'canvas': it is not in celery_delayq/leaves.py"
    )


def loaded_after(program):
    """The leaves that a process has imported after these statements."""
    code = f"import sys; from celery import Celery; {program}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = {f"celery_delayq.{one.folder}": name for name, one in leaves.LEAVES.items()}
    return {names[name] for name in done.stdout.split() if name in names}


APP = "from celery_delayq import DelayQ; delayq = DelayQ(Celery(broker='redis://'))"


@pytest.mark.parametrize(
    ("program", "loaded"),
    [
        ("import celery_delayq.cli", {"control"}),
        ("import celery_delayq.contrib.pytest", set()),
        (APP, AT_ONCE),
        (f"{APP}; delayq.scanner()", AT_ONCE | {"canvas"}),
        (f"{APP}; delayq.dump()", AT_ONCE | {"care"}),
        (f"{APP}; delayq.history(0)", AT_ONCE | {"canvas", "history"}),
        ("import celery_delayq.metrics", {"metrics"}),
    ],
)
def test_a_leaf_is_imported_when_it_is_used(program, loaded):
    assert loaded_after(program) == loaded
