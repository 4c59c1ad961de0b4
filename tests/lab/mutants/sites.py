"""Places at which a small change makes a file wrong: comparisons, logic, numbers, calls."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lupa.lua51 import LuaRuntime, LuaSyntaxError

LUA = LuaRuntime()
SWAPS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "+": "-",
    "-": "+",
    "and": "or",
    "or": "and",
    "not": "",
    "True": "False",
    "False": "True",
    "true": "false",
    "false": "true",
}
PYTHON_SWAPS = {**SWAPS, "==": "!=", "!=": "==", "is": "is not"}
LUA_SWAPS = {**SWAPS, "==": "~=", "~=": "=="}
# A Lua file in pieces; comments and strings come first: nothing inside them is code.
LUA_TOKEN = re.compile(
    r"--\[\[.*?\]\]|--[^\n]*|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|[A-Za-z_]\w*|\d+(?:\.\d+)?|[<>=~]=|\.\.|\S",
    re.DOTALL,
)
# One whole call as a statement: the mutant skips the call.
LUA_CALL = re.compile(r"^[ \t]*([a-z_][\w.]*\([^\n]*\))$", re.MULTILINE)


@dataclass(frozen=True)
class Site:
    """Replaces *old*, at *start* in *path*, by *new*."""

    path: str
    start: int
    old: str
    new: str

    def apply(self, text: str) -> str:
        end = self.start + len(self.old)
        assert text[self.start : end] == self.old
        return text[: self.start] + self.new + text[end:]

    def told(self, text: str) -> str:
        number = text.count("\n", 0, self.start) + 1
        column = self.start - text.rfind("\n", 0, self.start)
        line = text.splitlines()[number - 1].strip()
        return f"{self.path}:{number}:{column}: {self.old.strip()!r} -> {self.new!r} in: {line}"


def sites(path: Path) -> list[Site]:
    """All sites of a file, in the order of the text, whose change compiles."""
    text = path.read_text(encoding="utf-8")
    found, compiles = (_python, _is_python) if path.suffix == ".py" else (_lua, _is_lua)
    all_of_it = (Site(str(path), *each) for each in found(text))
    return sorted(
        (site for site in all_of_it if compiles(site.apply(text))), key=lambda site: site.start
    )


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _is_lua(text: str) -> bool:
    try:
        LUA.compile(text)
    except LuaSyntaxError:
        return False
    return True


def _python(text: str) -> Iterator[tuple[int, str, str]]:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    types = _lines_of_types(text)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        row, column = token.start
        if row in types or token.type not in (tokenize.OP, tokenize.NAME, tokenize.NUMBER):
            continue
        for old, new in _changed(token.string, PYTHON_SWAPS):
            # "is not" and "not in" are operators of two words.
            if (old, token.line[column + len(old) :][:4]) not in {("is", " not"), ("not", " in ")}:
                yield starts[row - 1] + column, old, new
    for call in ast.walk(ast.parse(text)):
        if isinstance(call, ast.Expr) and isinstance(call.value, ast.Call):
            start = starts[call.lineno - 1] + call.col_offset
            yield start, text[start : starts[call.end_lineno - 1] + call.end_col_offset], "pass"


def _lines_of_types(text: str) -> set[int]:
    """Imports, signatures, annotated names: a change there has no effect, or is invalid Python."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom | ast.AnnAssign):
            lines.update(range(node.lineno, node.end_lineno + 1))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            lines.update(range(node.lineno, max(node.lineno + 1, node.body[0].lineno)))
            lines.update(each.lineno for each in node.decorator_list)
        elif isinstance(node, ast.Assert):
            lines.update(range(node.lineno, node.end_lineno + 1))
    return lines


def _lua(text: str) -> Iterator[tuple[int, str, str]]:
    for token in LUA_TOKEN.finditer(text):
        for old, new in _changed(token[0], LUA_SWAPS):
            yield token.start(), old, new
    inside = [token.span() for token in LUA_TOKEN.finditer(text) if token[0].startswith("--")]
    for call in LUA_CALL.finditer(text):
        if not any(start <= call.start(1) < end for start, end in inside):
            yield call.start(1), call[1], ""


def _changed(word: str, swaps: dict[str, str]) -> Iterator[tuple[str, str]]:
    if word in swaps:
        yield word, swaps[word]
    elif word.isdigit():
        yield word, str(int(word) + 1)
