"""A test that uses a library's internals has the marker, so it also runs on the oldest packages."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LIBRARIES = ("amqp", "billiard", "celery", "kombu", "redis", "vine")
# Documented parts of a library, and the command line, which is the same in each version.
PUBLIC = (
    *("celery.bin", "celery.canvas", "celery.exceptions", "celery.result", "celery.schedules"),
    *("celery.signals", "celery.states", "celery.utils", "kombu.exceptions", "redis.exceptions"),
    "redis.crc",
)


def insides(text: str) -> set[str]:
    """The modules and private names of libraries that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module)
            found.update(f"{node.module}.{each.name}" for each in node.names if each.name[0] == "_")
    return {
        name
        for name in found
        if name.split(".")[0] in LIBRARIES and "." in name and not name.startswith(PUBLIC)
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from celery.app.amqp import AMQP", {"celery.app.amqp"}),
        ("from celery import _state", {"celery._state"}),
        ("import kombu.transport.redis", {"kombu.transport.redis"}),
        ("from celery import Celery, chain\nfrom celery.result import AsyncResult", set()),
    ],
)
def test_an_import_of_insides_is_found(text, found):
    assert insides(text) == found


def test_every_file_that_imports_a_library_s_insides_is_marked():
    texts = {path: path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py")}
    unmarked = [
        f"{path.relative_to(TESTS)} imports {', '.join(sorted(insides(text)))}"
        for path, text in texts.items()
        if insides(text) and "pytest.mark.libraries" not in text
    ]
    assert unmarked == []
