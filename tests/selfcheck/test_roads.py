"""``./tests/run roads`` counts correctly."""

import ast
from itertools import pairwise

from celery_delayq.core import clock
from tests.lab.roads import PACKAGE, longest_chain, roads, walked
from tests.support.apps import celery_state_kept


def test_a_road_has_each_function_that_a_call_enters():
    road = walked(lambda: [clock.after(60), clock.after(61)])
    assert road.files == {"core/clock.py"}
    assert {code.co_name: times for code, times in road.entered.items()}["after"] == 2
    assert road.figures[2] == 2 * road.figures[1]


def test_each_call_is_walked(redis_server):
    redis_server.empty()
    with celery_state_kept():
        found = dict(roads(redis_server.url()))
    assert "operations/cli/command_change.py" in found["cancel --tag"].files
    assert all("core/store/scripts.py" in road.files for road in found.values())


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
