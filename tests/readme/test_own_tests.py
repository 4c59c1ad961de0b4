"""The tests on the pages pass in runs of pytest."""

import subprocess
import sys

import pytest

from tests.readme.conftest import first_example
from tests.readme.document import page

PLUGINS = ("timeout", "xdist", "hypothesispytest", "valkey", "cacheprovider")
RUNS = {
    "first": ("guide/test", ["test_shop.py"], 2),
    "all": (
        "guide/test",
        ["conftest.py", "test_frozen.py", "test_shop.py", "test_without_pytest.py"],
        4,
    ),
    "workflows": ("guide/workflows", ["test_workflows.py", "workflows.py"], 2),
}


@pytest.fixture(params=RUNS.values(), ids=RUNS)
def told(request):
    return request.param


@pytest.fixture
def folder(told, tmp_path, monkeypatch):
    """The files that a page shows, each named as in its first line."""
    name, files, _ = told
    for block in [first_example(), *page(name).written_in("python")]:
        file = block.text.split()[1]
        if file in [*files, "shop.py"]:
            tmp_path.joinpath(file).write_text(block.text, encoding="utf-8")
    config = "[pytest]\npythonpath = .\n"
    tmp_path.joinpath("pytest.ini").write_text(config, encoding="utf-8")
    monkeypatch.delenv("DELAYQ_TEST_REDIS", raising=False)
    return tmp_path


def test_the_tests_on_a_page_pass(told, folder):
    _, files, count = told
    without = [option for plugin in PLUGINS for option in ("-p", f"no:{plugin}")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-W", "error", *without],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert {path.name for path in folder.glob("*.py")} == {*files, "shop.py"}
    assert f" {count} passed in " in done.stdout, done.stdout + done.stderr
