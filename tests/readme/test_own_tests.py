"""The section on tests of one's own is a test run of the example project, and it passes."""

import re
import subprocess
import sys

import pytest

from tests.readme.document import EXAMPLE, ROOT

SECTION = "Tests of one's own"
PLUGINS = ("timeout", "xdist", "hypothesispytest", "valkey", "cacheprovider")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files that the section shows, each under the name in its first line."""
    for block in EXAMPLE.written_in("python", SECTION):
        name = re.match(r"# (\w+\.py)\n", block.text)
        if name:
            tmp_path.joinpath(name[1]).write_text(block.text, encoding="utf-8")
    config = f"[pytest]\npythonpath = {ROOT / 'example_project'}\n"
    tmp_path.joinpath("pytest.ini").write_text(config, encoding="utf-8")
    monkeypatch.delenv("DELAYQ_TEST_REDIS", raising=False)
    return tmp_path


def test_its_tests_pass(folder):
    without = [option for plugin in PLUGINS for option in ("-p", f"no:{plugin}")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-W", "error", *without],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    names = {path.name for path in folder.glob("*.py")}
    assert names == {"conftest.py", "test_topup.py", "test_without_pytest.py", "test_frozen.py"}
    assert " 5 passed in " in done.stdout, done.stdout + done.stderr
