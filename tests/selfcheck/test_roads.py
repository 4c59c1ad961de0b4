"""``./tests/run roads`` counts correctly, and no road is longer than the stored figures."""

import ast
import subprocess
import sys
from itertools import pairwise

import pytest

from celery_delayq.core import clock
from tests.lab.roads import PACKAGE, longer, longest_chain, roads, walked
from tests.support.apps import celery_state_kept

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="earlier Pythons have no sys.monitoring"
)


@pytest.fixture(scope="module")
def found(redis_server):
    redis_server.empty()
    with celery_state_kept():
        return dict(roads(redis_server))


def test_a_road_has_each_function_that_a_call_enters():
    road = walked(lambda: [clock.after(60), clock.after(61)])
    assert road.files == {"core/clock.py"}
    assert {code.co_name: times for code, times in road.entered.items()}["after"] == 2
    assert road.figures["calls"] == 2 * road.figures["functions"]


def test_each_call_is_walked(found):
    assert "operations/cli/change.py" in found["cancel --tag"].files
    assert "core/handover/relay.py" in found["hand_over"].files
    assert "core/handover/publishers.py" in found["hand_over to another broker"].files
    assert all("core/store/scripts.py" in road.files for road in found.values())


def test_no_road_and_no_chain_is_longer_than_the_stored_figure():
    """A longer one needs a reason; then `./tests/run roads --write` stores it, or a shorter one."""
    # In a process of its own: other tests leave receivers of signals, which a call then enters.
    said = subprocess.run(
        [sys.executable, "-m", "tests.lab.roads"], stderr=subprocess.PIPE, text=True, check=False
    )
    assert said.returncode == 0, said.stderr


def test_a_figure_that_is_larger_than_the_stored_one_or_has_none_is_told():
    allowed = {"cancel": {"files": 15, "calls": 80}}
    assert longer({"cancel": {"files": 15, "calls": 79}}, allowed) == []
    assert longer({"cancel": {"files": 16, "calls": 79}, "get": {"files": 1}}, allowed) == [
        "cancel: 16 files, stored are 15",
        "get: 1 files, stored are 0",
    ]


def test_each_module_of_the_chain_imports_the_next():
    chain = longest_chain()

    assert len(chain) > 1
    for module, imported in pairwise(chain):
        path = PACKAGE.parent.joinpath(*module.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        names = {
            name
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom)
            for name in (node.module or "", *(each.name for each in node.names))
        }
        assert any(name.endswith(imported.rpartition(".")[2]) for name in names)
