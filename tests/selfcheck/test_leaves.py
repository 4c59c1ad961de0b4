"""``./tests/run leaves`` removes the named leaf, and runs the tests that can run without it."""

import ast
import shutil
from pathlib import Path

import pytest

from celery_delayq.core.leaves import LEAVES
from tests.lab.leaves import (
    CORE,
    OPERATIONS,
    PACKAGE,
    ROOT,
    files_with,
    size_of,
    sizes,
    take_out,
    take_out_all,
)

CONTRIB, ABOVE = "celery_delayq.contrib.", "celery_delayq.operations."


def imported(path):
    """The modules that a file imports while it is imported itself."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{each.name}" for each in node.names)


@pytest.mark.parametrize(
    ("markers", "above"), [((CORE, OPERATIONS), (CONTRIB,)), ((CORE,), (CONTRIB, ABOVE))]
)
def test_no_test_of_the_core_or_the_operations_imports_what_stands_above(markers, above):
    marked = files_with(ROOT, *markers)
    conftests = {path.parent / "conftest.py" for path in marked}
    found = [
        (str(path.relative_to(ROOT)), name)
        for path in [*marked, *(one for one in conftests if one.exists())]
        for name in imported(path)
        if f"{name}.".startswith(above)
    ]

    assert len(marked) > 20
    assert found == []


@pytest.mark.thorough  # each row copies the package
@pytest.mark.parametrize("name", LEAVES)
def test_a_leaf_that_is_taken_out_is_gone_with_its_line(tmp_path, name):
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name)

    take_out(name, tmp_path)

    place = Path(tmp_path, PACKAGE.name, "contrib", LEAVES[name].folder)
    assert not place.exists()
    assert not place.with_suffix(".py").exists()
    registry = tmp_path / PACKAGE.name / "core" / "leaves.py"
    assert f'"{name}": Leaf(' not in registry.read_text("utf-8")


@pytest.mark.thorough
def test_without_leaves_and_operations_the_core_is_left(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name)

    take_out_all(tmp_path)

    left = {path.name for path in (tmp_path / PACKAGE.name).iterdir()}
    assert not left & {"contrib", "operations"}
    registry = (tmp_path / PACKAGE.name / "core" / "leaves.py").read_text("utf-8")
    assert 'OPERATIONS = ""' in registry
    assert ": Leaf(" not in registry


def test_each_file_is_counted_once():
    found = sizes()
    assert found.keys() == {CORE, OPERATIONS, *LEAVES}
    assert sum(one.lines for one in found.values()) == size_of([*PACKAGE.rglob("*.py")]).lines


def test_docstrings_comments_and_blank_lines_are_no_code(tmp_path):
    path = tmp_path / "one.py"
    path.write_text('"""A module.\n\nWith more.\n"""\n\n# why\nX = """\ntext\n"""\n', "utf-8")
    assert size_of([path]) == (1, 9, 3)
