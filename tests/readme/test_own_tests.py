"""The sections on tests of one's own are runs of pytest, and they pass."""

import re
import subprocess
import sys

import pytest

from tests.readme.document import EXAMPLE, README, ROOT

PLUGINS = ("timeout", "xdist", "hypothesispytest", "valkey", "cacheprovider")
RUNS = {
    "README.md": (README, "Testing", ["shop.py", "test_shop.py"], 1),
    "example_project": (
        EXAMPLE,
        "Tests of one's own",
        ["conftest.py", "test_frozen.py", "test_topup.py", "test_without_pytest.py"],
        5,
    ),
}


@pytest.fixture(params=RUNS.values(), ids=RUNS)
def told(request):
    return request.param


@pytest.fixture
def folder(told, tmp_path, monkeypatch):
    """The files that a section shows, each under the name in its first line."""
    document, section, *_ = told
    first = README.written_in("python", "celery_delayq")[:1] if document is README else []
    for block in [*first, *document.written_in("python", section)]:
        name = re.match(r"# (\w+\.py)\n", block.text)
        if name:
            tmp_path.joinpath(name[1]).write_text(block.text, encoding="utf-8")
    config = f"[pytest]\npythonpath = . {ROOT / 'example_project'}\n"
    tmp_path.joinpath("pytest.ini").write_text(config, encoding="utf-8")
    monkeypatch.delenv("DELAYQ_TEST_REDIS", raising=False)
    return tmp_path


@pytest.mark.timeout(240)
def test_its_tests_pass(told, folder):
    *_, names, count = told
    without = [option for plugin in PLUGINS for option in ("-p", f"no:{plugin}")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-W", "error", *without],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert sorted(path.name for path in folder.glob("*.py")) == names
    assert f" {count} passed in " in done.stdout, done.stdout + done.stderr
