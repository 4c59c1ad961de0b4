"""The package as it is or as planned: circles, layers, chains, roads, and names that clash."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter

from .sources import FUNCTIONS, LATE, NAMED, PACKAGE, RUN, TYPE, Source, names_of, targets

Graph = dict[str, set[str]]
KINDS = (RUN, TYPE, LATE)


class House:
    """Today's sources, merged as ``room_of`` says.

    Args:
        modules: Today's sources.
        room_of: The module that each becomes; one that it does not name stays as it is.
        also: Imports by name.
    """

    def __init__(
        self,
        modules: dict[str, Source],
        room_of: dict[str, str],
        also: Iterable[tuple[str, str]] = (),
    ) -> None:
        self.modules = modules
        self.room_of = {name: room_of.get(name, name) for name in modules}
        self.rooms: dict[str, list[str]] = defaultdict(list)
        for old in [*room_of, *(each for each in modules if each not in room_of)]:
            self.rooms[self.room_of[old]].append(old)
        # Kind of import -> (from, to) -> the imports of today.
        self.edges: dict[str, dict[tuple[str, str], set[str]]] = defaultdict(dict)
        self.used: dict[str, set[str]] = defaultdict(set)  # names that other modules use
        for here, there in also:
            self._connect(NAMED, here, there, "")
        for source in modules.values():
            self._note(source)

    def _connect(self, kind: str, old: str, target: str, what: str) -> bool:
        here, there = self.room_of[old], self.room_of[target]
        if here != there:
            why = f"{old}: {target}{what and '.'}{what}"
            self.edges[kind].setdefault((here, there), set()).add(why)
        return here != there

    def _note(self, source: Source) -> None:
        for kind, base, name, bound in source.imports:
            for target, what in targets(self.modules, base, name):
                if self._connect(kind, source.name, target, what):
                    used = {what} if what else self._attributes(source, bound, target)
                    self.used[self.room_of[target]] |= used

    def _attributes(self, source: Source, bound: str, target: str) -> set[str]:
        """What a module uses of another, which it imports as a whole."""
        return {node.attr for node in attributes_of(source.tree, {bound})} & self.modules[
            target
        ].defined

    @property
    def plain(self) -> list[str]:
        return [name for name in self.rooms if not name.endswith("__init__")]

    def graph(self, *kinds: str) -> Graph:
        found: Graph = {name: set() for name in self.rooms}
        for kind in kinds:
            for here, there in self.edges[kind]:
                found[here].add(there)
        return found

    def whole(self) -> Graph:
        """All imports, but the package's own ``__init__``: it names all, for type checkers."""
        graph = self.graph(*KINDS)
        del graph["__init__"]
        return {name: theirs - {"__init__"} for name, theirs in graph.items()}

    def lines(self, room: str) -> int:
        """The lines that merging leaves: each import once, and one docstring's title less."""
        group = [self.modules[old] for old in self.rooms[room]]
        if len(group) == 1:
            return group[0].lines
        imports: dict[str, int] = {}
        for each in group:
            imports |= each.import_lines
        body = sum(each.lines - sum(each.import_lines.values()) for each in group)
        return body + sum(imports.values()) - 5 * (len(group) - 1)

    def clashes(self, room: str) -> dict[str, set[str]]:
        """Names that two of a room's modules define, or that one defines and another imports."""
        group = [self.modules[old] for old in self.rooms[room]]
        where: dict[str, set[str]] = defaultdict(set)
        for each in group:
            for name in each.defined - {"logger", "__all__"}:
                where[name].add(short(each.name))
        found = {name: olds for name, olds in where.items() if len(olds) > 1}
        for each in group:
            for _, base, name, bound in each.imports:
                inside = any(self.room_of[t] == room for t, _ in targets(self.modules, base, name))
                if not inside and bound in where and short(each.name) not in where[bound]:
                    found[bound] = where[bound] | {f"imported by {short(each.name)}"}
        return found

    def hidden(self, room: str) -> Iterator[str]:
        """Where ``module.name`` becomes ``name``, and a local beside it has that name."""
        for old in self.rooms[room]:
            source = self.modules[old]
            beside = {
                bound
                for _, base, name, bound in source.imports
                for target, what in targets(self.modules, base, name)
                if not what and self.room_of[target] == room and not target.endswith("__init__")
            }
            for scope in ast.walk(source.tree):
                if isinstance(scope, (ast.FunctionDef, ast.ClassDef)):
                    own = locals_of(scope)
                    for node in attributes_of(scope, beside):
                        if node.attr in own:
                            yield f"{old}.py:{node.lineno} {ast.unparse(node)} in {scope.name}"


def short(name: str) -> str:
    return name.rpartition("/")[2]


def attributes_of(tree: ast.AST, names: set[str]) -> Iterator[ast.Attribute]:
    """Each ``name.attribute`` of these names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in names:
            yield node


def locals_of(scope: ast.FunctionDef | ast.ClassDef) -> set[str]:
    if isinstance(scope, ast.ClassDef):
        return {name for each in scope.body for name in names_of(each)}
    found = {each.arg for each in ast.walk(scope) if isinstance(each, ast.arg)}
    for node in ast.walk(scope):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, FUNCTIONS[:2]) and node is not scope:
            found.add(node.name)
    return found


def circles(graph: Graph) -> list[list[str]]:
    """The modules of each circle of imports; only the first of several that share modules."""
    left, found = {name: set(theirs) for name, theirs in graph.items()}, []
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            circle = error.args[1][:-1]
            found.append(circle)
            for name in circle:
                left[name] = set()
        else:
            return found


def circles_of_siblings(graph: Graph) -> Iterator[tuple[str, list[str]]]:
    """The circles between a folder's children, each with all that is below it."""
    folders = {"/".join(name.split("/")[:i]) for name in graph for i in range(name.count("/") + 1)}
    for folder in sorted(folders):
        depth = folder.count("/") + 1 if folder else 0
        child = {
            name: "/".join(name.split("/")[: depth + 1])
            for name in graph
            if not folder or name.startswith(f"{folder}/")
        }
        small: Graph = {each: set() for each in child.values()}
        for here, above in child.items():
            small[above] |= {child[there] for there in graph[here] if there in child}
        for here in small:
            small[here].discard(here)
        for circle in circles(small):
            yield folder, circle


def longest_chain(graph: Graph) -> tuple[str, ...]:
    @cache
    def chain(name: str) -> tuple[str, ...]:
        return (name, *max(map(chain, sorted(graph[name])), key=len, default=()))

    return max(map(chain, sorted(graph)), key=len)


def broken(house: House, layers: str) -> Iterator[str]:
    """The imports that go up, or along a row whose modules do not know each other."""
    rows = [row.split() for row in layers.split(" > ")]
    place = {each: number for number, row in enumerate(rows) for each in row if each != ":"}

    def row_of(name: str) -> int | None:
        parts = name.split("/")
        above = ("/".join(parts[:i]) for i in range(len(parts), 0, -1))
        return next((place[each] for each in above if each in place), None)

    def within_one(here: str, there: str) -> bool:
        return any(
            f"{here}/".startswith(f"{each}/") and f"{there}/".startswith(f"{each}/")
            for each in place
        )

    for kind in KINDS:
        for (here, there), why in sorted(house.edges[kind].items()):
            a, b = row_of(here), row_of(there)
            if a is None or b is None or a < b or within_one(here, there):
                continue
            if a > b or ":" not in rows[a]:
                yield f"{kind}: {here} -> {there} ({'; '.join(sorted(why)[:3])})"


def loaded(house: House, olds: Iterable[str]) -> set[str]:
    """The modules that are imported once those of today are."""
    graph, found = house.graph(RUN, NAMED), set()
    left = [house.room_of[old] for old in olds]
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        parts = name.split("/")[:-1]
        inits = ("/".join([*parts[: i + 1], "__init__"]) for i in range(len(parts)))
        left += [*graph[name], *(each for each in inits if each in graph)]
    return found


def packages(house: House, olds: Iterable[str]) -> set[str]:
    """The other packages that are imported once these modules are; and the Celery's of them."""
    return {
        each.partition(".")[0]
        for room in loaded(house, olds)
        for old in house.rooms[room]
        for each in house.modules[old].foreign
    } - {*sys.stdlib_module_names, PACKAGE.name}


def no_longer_late(today: House, draft: House) -> Iterator[str]:
    """What a module imports late today, and would import at once."""
    for here, there in sorted(today.edges[LATE]):
        after = loaded(draft, [here])
        if draft.room_of[there] in after and there not in loaded(today, [here]):
            more = packages(draft, [here]) - packages(today, [here])
            yield f"{here} -> {there}; gains {' '.join(sorted(more)) or 'no other package'}"


def reach_more(today: House, draft: House) -> Iterator[str]:
    """Modules that would import one with imports by name, and do not today."""
    for here in sorted({each for each, _ in today.edges[NAMED]}):
        for old in sorted(today.modules):
            if draft.room_of[here] == draft.room_of[old] or here in loaded(today, [old]):
                continue
            if draft.room_of[here] in loaded(draft, [old]):
                yield f"{old} -> {here}"


def need_more(today: House, draft: House, always: set[str]) -> Iterator[str]:
    """Modules whose new one needs an optional package that they do not need today."""
    for old in sorted(today.modules):
        more = packages(draft, [old]) - packages(today, [old]) - always
        if more:
            yield f"{old} in {draft.room_of[old]}: {' '.join(sorted(more))}"
