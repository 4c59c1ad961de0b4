"""Runs an example, and checks the answers that it promises.

    result.cancel()               # -> Outcome.DONE
    remind.delay_until("noon")    # raises InvalidDueTime

A promise stands at the end of an expression. It has to equal the expression's value, as text or
as ``repr``, or name the error it raises.
"""

import ast
import re
from typing import Any

from tests.readme.document import Block

_PROMISE = re.compile(r"# (->|raises) (.*)$")


def run(block: Block, namespace: dict[str, Any]) -> int:
    """Execute *block* in *namespace*; return how many promises it kept.

    Raises:
        AssertionError: a promise was not kept, or does not follow an expression.
    """
    lines = block.text.splitlines()
    tree = ast.parse(block.text)
    promised = 0
    for statement in tree.body:
        promise = _PROMISE.search(lines[statement.end_lineno - 1])
        if promise and isinstance(statement, ast.Expr):
            _keep(_compiled(block, statement.value, "eval"), namespace, *promise.groups())
            promised += 1
        else:
            exec(_compiled(block, statement, "exec"), namespace)
    written = sum(bool(_PROMISE.search(line)) for line in lines)
    assert promised == written, f"a promise behind no expression, from line {block.line}"
    return promised


def _compiled(block: Block, node: Any, mode: str) -> Any:
    whole = ast.Module([node], []) if mode == "exec" else ast.Expression(node)
    return compile(ast.increment_lineno(whole, block.line - 1), block.document, mode)


def _keep(code: Any, namespace: dict[str, Any], kind: str, promise: str) -> None:
    given, error = None, None
    try:
        given = eval(code, namespace)
    except Exception as raised:
        error = raised
    if kind == "raises":
        assert type(error).__name__ == promise, f"{error!r}, {given!r}; expected {promise}"
    elif error is not None:
        raise error
    else:
        assert promise in (str(given), repr(given)), f"{given!r}; promised was {promise}"
