"""``./tests/run english [PATH...]``: sentences in which a pattern finds English to rewrite.

It reads Markdown, comments in Lua, and comments, docstrings and messages in Python. It prints each
place, then how many places each folder has. A bad sentence may well fit no pattern.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
QUOTE_THEM = ("english.py", "test_english.py")

# A text begins here, or a sentence, a part after ';' or ':', a paragraph, a list item or a cell.
_START = r"(?:\A\s*|[.:;!?)]\s+|\n[ \t]*\n\s*|\n[ \t]*[-*|] |\|\s+)"
_END = r"[.;:!?](?=\s|\Z)|\n[ \t]*\n| \||\Z"
_BETWEEN = " \t\n.:;!?)|*-"
_PLACE = (
    r"(?:app|backend|broker|case|code|column|database|directory|docs|file|folder|host|key|line|"
    r"machine|module|node|page|part|path|place|point|pod|position|process|queue|redis|room|section|"
    r"server|setting|shard|store|table|terminal|those|thread|worker|zone)(?:s|es)?"
)
_ASKS = (
    r"(?:and|asks?|begins?|by|ends?|exactly|finds?|from|is|knows?|known|learns?|of|on|or|remembers?|"
    r"sa(?:y|ys|id)|sees?|shows?|default|stands?|starts?|tells?|to)"
)

PATTERNS = {
    "clause as a noun": re.compile(
        rf"{_START}(?:what|who|whoever|whatever(?! (?:the|an?|its|your|their|happen\w+)\b))\s+\w+"
        r"|\bwhat\s+(?:waits?|(?:is|are)\s+(?:waiting|due|overdue|scheduled)|has\s+left)\b"
        r"|\ball\s+that\s+(?:is|are|was|were|has|have|waits?|comes?|can|it)\b",
        re.IGNORECASE,
    ),
    "who says it": re.compile(r"\b(?:is|are|was|were|be|been|being)\s+(?:told|said|asked)\b"),
    "process as a person": re.compile(
        r"\b(?:whoever|nobody|(?:some|any)(?:body|one)\s+else)\b", re.IGNORECASE
    ),
    "where for if": re.compile(
        rf"{_START}where\s[^,.;:!?]*,|\b(?!{_PLACE}\W)(?!{_ASKS}\s)[\w`')]+,?\s+where\s+\w+",
        re.IGNORECASE,
    ),
}


class Text(NamedTuple):
    """A document, comment, docstring or message, and its first line."""

    line: int
    text: str


class Place(NamedTuple):
    """A sentence that a pattern finds."""

    path: Path
    line: int
    pattern: str
    sentence: str


def markdown(source: str) -> Iterator[Text]:
    """The text without code, headings and the headings of tables."""
    kept, is_code = [], False
    lines = source.splitlines()
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        is_fence = line.lstrip().startswith("```")
        is_heading = line.startswith(("#", "<!--", "|-", "| -")) or after.startswith(("|-", "| -"))
        kept.append("" if is_fence or is_code or is_heading else line)
        is_code ^= is_fence
    yield Text(1, "\n".join(kept))


def lua(source: str) -> Iterator[Text]:
    """Its comments; those on consecutive lines are one text."""
    for found in re.finditer(r"--\[\[.*?\]\]|--[^\n]*(?:\n[ \t]*--[^\n]*)*", source, re.DOTALL):
        text = re.sub(r"^[ \t]*--(?:\[\[)?", "", found.group(), flags=re.MULTILINE)
        yield Text(source.count("\n", 0, found.start()) + 1, text.removesuffix("]]"))


def python(source: str) -> Iterator[Text]:
    """Comments, those on consecutive lines as one text, then docstrings and messages."""
    comments: list[Text] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            text = token.string.lstrip("#")
            if comments and token.start[0] == last + 1:
                text = comments[-1].text + "\n" + text
                comments[-1] = comments[-1]._replace(text=text)
            else:
                comments.append(Text(token.start[0], text))
            last = token.start[0]
    yield from comments
    yield from _strings(ast.parse(source))


def _strings(node: ast.AST) -> Iterator[Text]:
    if isinstance(node, ast.JoinedStr):
        parts = (getattr(part, "value", "") for part in node.values)
        yield Text(node.lineno, "".join(one if isinstance(one, str) else "x" for one in parts))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        if len(node.value.split()) > 2:  # else it is a name
            yield Text(node.lineno, node.value)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _strings(child)


READERS = {".md": markdown, ".lua": lua, ".py": python}


def places(path: Path, source: str) -> Iterator[Place]:
    """Each place in a file that a pattern finds, except in questions."""
    for first, text in READERS[path.suffix](source):
        # Code in a sentence is a word.
        plain = re.sub(r"(`+)[^`]+\1", lambda code: re.sub(r"[^\n]", "x", code.group()), text)
        for name, pattern in PATTERNS.items():
            for found in pattern.finditer(plain):
                begin = found.end() - len(found.group().lstrip(_BETWEEN))
                end = re.compile(_END).search(plain, found.end())
                if not plain.startswith("?", end.start()):
                    line = first + plain.count("\n", 0, begin)
                    yield Place(path, line, name, " ".join(text[begin : end.start()].split()))


def files(paths: list[str]) -> list[Path]:
    command = ["git", "ls-files", *(paths or ["."])]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [Path(one) for one in listed.splitlines() if Path(one).suffix in READERS]


def main(paths: list[str]) -> int:
    found = [
        place
        for path in files(paths)
        if path.name not in QUOTE_THEM
        for place in places(path, (ROOT / path).read_text("utf-8"))
    ]
    for path, line, pattern, sentence in found:
        print(f"{path}:{line}: {pattern}: {sentence}")
    by_folder = Counter(str(Path(*place.path.parent.parts[:2])) for place in found)
    for folder, count in by_folder.most_common():
        print(f"{count:5} {folder}")
    print(f"{len(found):5} in all")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
