"""The source files of the package: what each imports, when, and which names it defines.

A module is named by its path below the package, without ``.py``: ``core/store/keys``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[3] / "celery_delayq"
RUN, TYPE, LATE, NAMED = "run", "type", "late", "named"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Import(NamedTuple):
    """One name of one import.

    Attributes:
        kind: RUN at the top of a module, TYPE for types only, LATE within a function.
        base: The module or package that it is taken from, named as modules are; for other
            packages with a slash in front.
        name: What is taken from there.
        bound: By which name the module knows it.
    """

    kind: str
    base: str
    name: str
    bound: str


class Source:
    """A module: its text, its imports, the names that it defines."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        self.lines = self.text.count("\n")
        self.imports: list[Import] = []
        self.import_lines: dict[str, int] = {}  # a statement, and how many lines it takes
        self.foreign: set[str] = set()  # modules of other packages, imported at the top
        for statement, kind in imports_below(self.tree):
            self._note(statement, kind)
        self.defined = {each for node in self.tree.body for each in names_of(node)}

    def _note(self, statement: ast.Import | ast.ImportFrom, kind: str) -> None:
        if kind != LATE:
            length = (statement.end_lineno or statement.lineno) - statement.lineno + 1
            self.import_lines[ast.unparse(statement)] = length
        if isinstance(statement, ast.Import):
            self.foreign |= {each.name for each in statement.names if kind == RUN}
            return
        if kind == RUN and not statement.level:
            self.foreign.add(statement.module or "")
        base = base_of(self.name, statement)
        self.imports += [
            Import(kind, base, each.name, each.asname or each.name) for each in statement.names
        ]


def imports_below(parent: ast.AST, kind: str = RUN) -> Iterator[tuple[ast.AST, str]]:
    """The imports below a node, each with its kind."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node, kind
        elif is_for_types(node):
            yield from imports_below(ast.Module(node.body, []), TYPE)
            yield from imports_below(ast.Module(node.orelse, []), kind)
        else:
            yield from imports_below(node, LATE if isinstance(node, FUNCTIONS) else kind)


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def base_of(module: str, statement: ast.ImportFrom) -> str:
    """Where a module's ``from ... import`` takes its names from, named as modules are."""
    words = (statement.module or "").split(".") if statement.module else []
    if not statement.level:
        inside = words[:1] == [PACKAGE.name]
        return "/".join(words[1:] if inside else ["", *words])
    return "/".join([*module.split("/")[: -statement.level], *words])


def names_of(node: ast.AST) -> list[str]:
    """The names that a statement defines."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    targets: list[ast.AST] = []
    if isinstance(node, ast.Assign):
        targets = [*node.targets]
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return [each.id for one in targets for each in ast.walk(one) if isinstance(each, ast.Name)]


def sources(package: Path = PACKAGE) -> dict[str, Source]:
    """All modules of the package."""
    paths = {
        path.relative_to(package).with_suffix("").as_posix(): path
        for path in sorted(package.rglob("*.py"))
    }
    return {name: Source(name, path) for name, path in paths.items()}


def targets(modules: dict[str, Source], base: str, name: str) -> list[tuple[str, str]]:
    """The modules that ``from base import name`` leads to, with the name in each or "" for all.

    A name that a package's ``__init__`` takes from a module leads to that module, and to itself.
    """
    inside = f"{base}/{name}".strip("/")
    for whole in (inside, f"{inside}/__init__"):
        if whole in modules:
            return [(whole, "")]
    if base in modules:
        return [(base, name)]
    init = f"{base}/__init__".strip("/")
    if init not in modules:
        return []
    further = [each for each in modules[init].imports if each.bound == name]
    found = [one for each in further for one in targets(modules, each.base, each.name)]
    return [(init, ""), *found] if found else [(init, name)]
