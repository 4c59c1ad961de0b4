"""``./tests/run leaves`` removes the named leaf, and runs the tests that can run without it."""

import ast
import shutil
from pathlib import Path

import pytest

from celery_delayq.core.leaves import LEAVES
from tests.leaves import KERNEL, PACKAGE, ROOT, files_of_kernel, size_of, sizes, take_out

FOLDERS = {f"celery_delayq.{leaf.folder}" for leaf in LEAVES.values()}


def imported(path):
    """The modules that a file imports while it is imported itself."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{each.name}" for each in node.names)


def test_no_test_of_the_kernel_imports_a_leaf():
    marked = files_of_kernel(ROOT)
    conftests = {path.parent / "conftest.py" for path in marked}
    found = [
        (str(path.relative_to(ROOT)), name)
        for path in [*marked, *(one for one in conftests if one.exists())]
        for name in imported(path)
        if any(f"{name}.".startswith(f"{folder}.") for folder in FOLDERS)
    ]

    assert len(marked) > 30
    assert found == []


@pytest.mark.thorough  # each row copies the package
@pytest.mark.parametrize("name", LEAVES)
def test_a_leaf_that_is_taken_out_is_gone_with_its_line(tmp_path, name):
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name)

    take_out(name, tmp_path)

    place = Path(tmp_path, PACKAGE.name, *LEAVES[name].folder.split("."))
    assert not place.exists()
    assert not place.with_suffix(".py").exists()
    assert f'"{name}"' not in (tmp_path / PACKAGE.name / "leaves.py").read_text("utf-8")


def test_each_file_is_counted_once():
    found = sizes()

    assert found.keys() == {KERNEL, *LEAVES}
    assert sum(one.lines for one in found.values()) == size_of([*PACKAGE.rglob("*.py")]).lines


def test_docstrings_comments_and_blank_lines_are_no_code(tmp_path):
    path = tmp_path / "one.py"
    path.write_text('"""A module.\n\nWith more.\n"""\n\n# why\nX = """\ntext\n"""\n', "utf-8")

    assert size_of([path]) == (1, 9, 3)
