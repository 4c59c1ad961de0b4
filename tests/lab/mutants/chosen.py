"""The tests that can notice a change, in the order in which they run, and a module's own files."""

import ast
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
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
        self._tests: dict[str, list[str]] = defaultdict(list)
        for name, (_, places) in tests.items():
            self._tests[file_of(name)].append(name)
            for place in places:
                self._reached[place].add(name)
        # How many functions and scripts a test of each file enters.
        self._breadth = {
            file: sum(len(tests[name][1]) for name in own) / len(own)
            for file, own in self._tests.items()
        }

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
        ``clock.py``. If there is none: the three that are most about it, by the share of their
        tests that enter it, times the share of its functions that they enter.
        """
        if module.endswith(".lua"):
            within = {place for site in sites for place in _places(site)}
        else:
            within = {place for place in self._reached if place.startswith(f"{module}:")}
        entered: dict[str, int] = Counter()
        entering: dict[str, set[str]] = defaultdict(set)
        for place in within:
            tests = self._reached[place]
            entered.update({file_of(test) for test in tests})
            for test in tests:
                entering[file_of(test)].add(test)
        path = Path(module)
        name = f"test_{path.parent.name if path.stem == '__init__' else path.stem}"
        named = [file for file in entered if f"{Path(file).stem}_".startswith(f"{name}_")]
        about = lambda file: len(entering[file]) / len(self._tests[file]) * entered[file]  # noqa: E731
        order = lambda file: (-about(file), self._breadth[file], file)  # noqa: E731
        return sorted(named) or sorted(entered, key=order)[:OWN]

    def functions(self, file: str) -> set[str]:
        """The test functions of a file."""
        return set(map(function_of, self._tests[file]))

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

    def _sorted(self, tests: set[str]) -> Iterator[str]:
        """The quick ones first; then file by file, as its fixtures serve all of them.

        Files whose tests enter the least say the most about what they enter.
        """
        place = lambda name: (  # noqa: E731
            self._seconds[name] > QUICK,
            self._breadth[file_of(name)],
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
