"""Which scope of a module each name belongs to, as Python resolves it."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator
from typing import NamedTuple

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
OWN = (*FUNCTIONS, *COMPREHENSIONS, ast.ClassDef)


class Use(NamedTuple):
    """A name where it is used: its node, its scope, and all scopes around it, the module first."""

    node: ast.Name
    scope: ast.AST
    around: tuple[ast.AST, ...]


def uses(tree: ast.Module) -> Iterator[Use]:
    """Each name of a module; one that no scope binds belongs to the module."""
    bound: dict[ast.AST, set[str]] = {}

    def is_bound(name: str, scope: ast.AST) -> bool:
        if scope not in bound:
            bound[scope] = {*bound_in(scope)}
        return name in bound[scope]

    def walk(node: ast.AST, around: tuple[ast.AST, ...]) -> Iterator[Use]:
        if isinstance(node, ast.Name):
            visible = [each for each in around[:-1] if not isinstance(each, ast.ClassDef)] + [
                around[-1]
            ]
            scope = next((s for s in reversed(visible) if is_bound(node.id, s)), tree)
            yield Use(node, scope, around)
        if isinstance(node, OWN):
            outer, inner = parts_of(node)
            for each in outer:
                yield from walk(each, around)
            for each in inner:
                yield from walk(each, (*around, node))
        else:
            for each in ast.iter_child_nodes(node):
                yield from walk(each, around)

    yield from walk(tree, (tree,))


def parts_of(scope: ast.AST) -> tuple[list[ast.AST], list[ast.AST]]:
    """What of a definition belongs to the scope around it, and what to its own."""
    if isinstance(scope, COMPREHENSIONS):
        first, *others = scope.generators
        inner = [each for each in ast.iter_child_nodes(scope) if each not in scope.generators]
        return [first.iter], [*inner, first.target, *first.ifs, *others]
    if isinstance(scope, ast.Lambda):
        return [*defaults_of(scope.args)], [scope.args, scope.body]
    outer: list[ast.AST] = [*scope.decorator_list]
    if isinstance(scope, ast.ClassDef):
        return [*outer, *scope.bases, *scope.keywords], [*scope.body]
    annotations = [each.annotation for each in ast.walk(scope.args) if isinstance(each, ast.arg)]
    outer += [*defaults_of(scope.args), *(each for each in [*annotations, scope.returns] if each)]
    return outer, [*scope.body]


def defaults_of(arguments: ast.arguments) -> list[ast.expr]:
    return [each for each in [*arguments.defaults, *arguments.kw_defaults] if each]


def bound_in(scope: ast.AST, without: Container[ast.alias] = ()) -> Iterator[str]:
    """The names that a scope binds itself, but for some imports."""
    if isinstance(scope, FUNCTIONS):
        yield from (each.arg for each in ast.walk(scope.args) if isinstance(each, ast.arg))
    if isinstance(scope, COMPREHENSIONS):
        targets = (each.target for each in scope.generators)
        yield from (n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))
        return
    body = [scope.body] if isinstance(scope, ast.Lambda) else scope.body
    others = {
        name
        for each in below(body)
        if isinstance(each, (ast.Global, ast.Nonlocal))
        for name in each.names
    }
    yield from (name for each in below(body) for name in binds(each, without) if name not in others)


def below(body: list[ast.AST]) -> Iterator[ast.AST]:
    """All nodes of a scope, without those of the scopes in it; but with what := binds there."""
    for node in body:
        yield node
        if isinstance(node, COMPREHENSIONS):
            yield from (each for each in ast.walk(node) if isinstance(each, ast.NamedExpr))
        elif isinstance(node, OWN):
            yield from below(parts_of(node)[0])
        else:
            yield from below([*ast.iter_child_nodes(node)])


def binds(node: ast.AST, without: Container[ast.alias] = ()) -> list[str]:
    if isinstance(node, ast.Name):
        return [node.id] if isinstance(node.ctx, (ast.Store, ast.Del)) else []
    if isinstance(node, ast.NamedExpr):
        return [node.target.id]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        names = [each for each in node.names if each not in without]
        return [(each.asname or each.name).partition(".")[0] for each in names]
    if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        return [node.name] if node.name else []
    return []
