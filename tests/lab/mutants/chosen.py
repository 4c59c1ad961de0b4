"""The tests that can notice a change, in the order in which they run."""

import ast
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.lab.mutants.reached import PROCESSES
from tests.lab.mutants.sites import Site
from tests.support.lua_files import altered

LUA = Path("celery_delayq/core/store/lua")
# Fewer tests that enter a function may be no more than those that filled a cache: then all that
# enter its file follow.
FEW = 20
QUICK = 1.0  # seconds


class Chosen:
    """The functions that each test reaches, from the files that `reached.py` wrote.

    Args:
        found: The content of these files.
        unsteady: Tests to leave out.
    """

    def __init__(self, found: list[dict[str, Any]], unsteady: list[str]):
        self._seconds: dict[str, float] = {}
        self._reached: dict[str, set[str]] = defaultdict(set)
        for process in found:
            names = [name for name, _ in process["tests"]]
            self._seconds |= dict(process["tests"])
            for place, numbers in process["reached"].items():
                self._reached[place].update(names[number] for number in numbers)
        for name in unsteady:
            self._seconds.pop(name, None)
        self._files = Counter[str]()
        for name, taken in self._seconds.items():
            self._files[name.split("::")[0]] += taken

    def tests(self, site: Site) -> list[str]:
        """First those that reach the change; then those that may, in processes that they start."""
        lua = site.path.endswith(".lua")
        rows = [self._reached[each] for each in (_scripts(site) if lua else [_function(site)])]
        first = set().union(*rows)
        in_file = set().union(
            *(tests for place, tests in self._reached.items() if place.startswith(f"{site.path}:"))
        )
        ordered = dict.fromkeys(self._sorted(first))
        if len(ordered) < FEW:
            ordered |= dict.fromkeys(self._sorted(in_file))
        return [*(ordered | dict.fromkeys(self._sorted(self._reached[PROCESSES])))]

    def within(self, tests: list[str], seconds: float) -> list[str]:
        """As many of them, from the first on, as took so long together."""
        for number, name in enumerate(tests):
            seconds -= self._seconds[name]
            if seconds < 0:
                return tests[:number]
        return tests

    def _sorted(self, tests: set[str]) -> Iterator[str]:
        """The quick ones first, file by file, as a file's fixtures serve all of its tests."""
        place = lambda name: (  # noqa: E731
            self._seconds[name] > QUICK,
            self._files[name.split("::")[0]],
            name.split("::")[0],
            self._seconds[name],
        )
        return iter(sorted(tests & self._seconds.keys(), key=place))


def _function(site: Site) -> str:
    """The beginning of the function that has the change, as `reached.py` names it."""
    text = Path(site.path).read_text(encoding="utf-8")
    line = text.count("\n", 0, site.start) + 1
    starts = [
        min([node.lineno, *(each.lineno for each in node.decorator_list)])
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return f"{site.path}:{max(starts, default=0)}"


def _scripts(site: Site) -> list[str]:
    """The scripts whose text the change alters; of the prelude, each has the part that it uses."""
    path = Path(site.path)
    if path.parent == LUA:
        return [path.name]
    own = path.read_text(encoding="utf-8")
    found = altered(lambda text: site.apply(text) if text == own else text)
    return [f"{name}.lua" for name in found]


def read(path: Path) -> Chosen:
    return Chosen(**json.loads(path.read_text(encoding="utf-8")))
