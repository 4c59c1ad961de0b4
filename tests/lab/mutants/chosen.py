"""The tests that can notice a change, in the order in which they run, and a module's own files."""

import ast
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from tests.lab.mutants.reached import PROCESSES
from tests.lab.mutants.sites import Site
from tests.support.lua_files import altered

LUA = Path("celery_delayq/core/store/lua")
# Fewer tests that enter a function may be no more than those that filled a cache: then all that
# enter its file follow, and those that may enter it in processes that they start.
FEW = 20
QUICK = 1.0  # seconds
# How many files count as a module's own if none has its name.
OWN = 3


class Chosen:
    """What each test reaches, as `reached.py` wrote it.

    Args:
        tests: For each test, its seconds, and the functions and scripts that it enters.
    """

    def __init__(self, tests: Mapping[str, tuple[float, Collection[str]]]):
        self._seconds = {name: seconds for name, (seconds, _) in tests.items()}
        self._reached: dict[str, set[str]] = defaultdict(set)
        self._files = Counter[str]()
        for name, (seconds, places) in tests.items():
            self._files[file_of(name)] += seconds
            for place in places:
                self._reached[place].add(name)

    def tests(self, site: Site) -> list[str]:
        """Those that reach the change; if these are few, then those that may."""
        first = set().union(*(self._reached[each] for each in _places(site)))
        in_file = set().union(
            *(tests for place, tests in self._reached.items() if place.startswith(f"{site.path}:"))
        )
        ordered = dict.fromkeys(self._sorted(first))
        if len(ordered) < FEW:
            ordered |= dict.fromkeys(self._sorted(in_file))
            ordered |= dict.fromkeys(self._sorted(self._reached[PROCESSES]))
        return [*ordered]

    def own_files(self, module: str, sites: list[Site]) -> list[str]:
        """The test files that are a module's own; *sites* are in it.

        Those that reach it and have its name: ``test_clock.py`` and ``test_clock_foreign.py`` for
        ``clock.py``. If there is none: the three that enter the most functions of the module, and
        of these that enter the same number, those that enter the fewest others.
        """
        if module.endswith(".lua"):
            within = {place for site in sites for place in _places(site)}
        else:
            within = {place for place in self._reached if place.startswith(f"{module}:")}
        found = {file: places & within for file, places in self._entered.items() if places & within}
        path = Path(module)
        name = f"test_{path.parent.name if path.stem == '__init__' else path.stem}"
        named = [file for file in found if f"{Path(file).stem}_".startswith(f"{name}_")]
        order = lambda file: (-len(found[file]), len(self._entered[file]), file)  # noqa: E731
        return sorted(named) or sorted(found, key=order)[:OWN]

    def functions(self, file: str) -> set[str]:
        """The test functions of a file."""
        return {function_of(name) for name in self._seconds if file_of(name) == file}

    def seconds(self, tests: list[str]) -> float:
        """How long they took."""
        return sum(self._seconds[name] for name in tests)

    def within(self, tests: list[str], seconds: float) -> list[str]:
        """As many of them, from the first on, as took so long together."""
        for number, name in enumerate(tests):
            seconds -= self._seconds[name]
            if seconds < 0:
                return tests[:number]
        return tests

    @cached_property
    def _entered(self) -> dict[str, set[str]]:
        """What each test file enters."""
        entered: dict[str, set[str]] = defaultdict(set)
        for place, tests in self._reached.items():
            if place != PROCESSES:
                for file in map(file_of, tests):
                    entered[file].add(place)
        return entered

    def _sorted(self, tests: set[str]) -> Iterator[str]:
        """The quick ones first, file by file, as a file's fixtures serve all of its tests."""
        place = lambda name: (  # noqa: E731
            self._seconds[name] > QUICK,
            self._files[file_of(name)],
            file_of(name),
            self._seconds[name],
        )
        return iter(sorted(tests, key=place))


def file_of(test: str) -> str:
    return test.partition("::")[0]


def function_of(test: str) -> str:
    """The test without its error and its parameters."""
    return test.partition(" - ")[0].partition("[")[0]


def _places(site: Site) -> list[str]:
    """What the change is in, as `reached.py` names it: a function, or scripts."""
    return _scripts(site) if site.path.endswith(".lua") else [_function(site)]


def _function(site: Site) -> str:
    """The beginning of the function that has the change."""
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
