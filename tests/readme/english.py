"""Patterns of English that one has to read twice, in every text: python -m tests.readme.english

python -m tests.readme.english                       how many there are, by folder
python -m tests.readme.english --list celery_delayq  each of them, with its line

Texts are the Markdown; and of code the docstrings, the comments and the other texts of more than
one word, such as messages. A pattern is a hint: in code, some hits are fine as they are.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.readme.document import DOCUMENTS, ROOT
from tests.readme.tables import tables

FOLDERS = ("celery_delayq", "example_project", "tests")
_START = r"(?:^|(?<=[.!?:] )|(?<=\| )|(?<=- ))"  # of a sentence, a cell or an item
_VERBS = r"(?:is|are|was|were|has|have|had|does|do|did|can|cannot|may|must|will|would|should)"

# What it is, and how one finds it; a sentence that ends with a question mark is a question.
PATTERNS = {
    "a clause as the subject": rf"{_START}(?:What|Who|Where|Whichever)\b(?![^.?|]*\?)[^.?|]+",
    "whoever, whatever": r"\b[Ww](?:hoever|hatever|hosever)\b",
    "somebody else": r"\b(?:[Ss]omebody|[Ss]omeone|[Aa]nybody|[Nn]obody) else\b",
    "is told, is said, is asked": r"\b(?:is|are|was|were|be|been) (?:not )?(?:told|said|asked)\b",
    "where for if": rf"(?:{_START}Where|, where|\bwhere (?:it|there|that|one|nothing|no|none|they)"
    rf" {_VERBS})\b",
    "a clause as a noun": r"\b(?:of|all|with|to|for|and) what (?:is|was|are|has|waits|left)\b",
    "what waits": r"\bwhat (?:waits|is due|falls due|fell due|has left|left|is overdue)\b",
    "of one's own": r"\bof one's own\b",
}


class Hit(NamedTuple):
    """One place: its file, its line, and the pattern."""

    file: str
    line: int
    pattern: str
    text: str


def hits_in_pages() -> list[Hit]:
    """All hits in Markdown, but for the tables that are made of code: those are counted there."""
    made = {line for table in tables() for line in table.text.splitlines()}
    return [hit for name, one in DOCUMENTS.items() for hit in hits_in(name, _prose(one.text, made))]


def hits_in_code() -> list[Hit]:
    """All hits in docstrings, comments and messages of Python, and in Lua's comments."""
    found: list[Hit] = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in _TEXTS:
                name = path.relative_to(ROOT).as_posix()
                found += hits_in(name, _TEXTS[path.suffix](path.read_text("utf-8")))
    return found


def hits_in(name: str, texts: Iterator[tuple[int, str]]) -> Iterator[Hit]:
    for line, text in texts:
        plain = " ".join(text.split())
        for pattern, expression in PATTERNS.items():
            for found in re.finditer(expression, plain):
                yield Hit(name, line, pattern, found[0])


def _prose(text: str, made: Container[str]) -> Iterator[tuple[int, str]]:
    """Paragraphs, items and rows of Markdown, without code, heads and the rows in *made*."""
    paragraph, begun, fenced = "", 0, False
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        fence = line.startswith("```")
        if fence or fenced or not line.strip() or re.match(r"#|\||- |\d+\. ", line):
            if paragraph:
                yield begun, paragraph
            paragraph, begun = "", number
        fenced ^= fence
        if not (fence or fenced or line.startswith("#") or line in made):
            paragraph += " " * bool(paragraph) + re.sub(r"`[^`]*`", "`x`", line)


def _python(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for paragraph in re.split(r"\n\s*\n", node.value):
                yield node.lineno, paragraph.strip()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def _lua(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        _, comment, words = line.partition("--")
        if comment:
            yield number, words.strip("[ ")


_TEXTS = {".py": _python, ".lua": _lua}


def _folder(hit: Hit) -> str:
    return "/".join(Path(hit.file).parts[:2] if "/" in hit.file else (hit.file,))


def main() -> None:
    """Print the hits, or how many there are."""
    parser = argparse.ArgumentParser(prog="./tests/run english")
    parser.add_argument("--list", action="store_true", help="each hit, and not only how many")
    parser.add_argument("folder", nargs="?", default="", help="only below it, such as tests/app")
    given = parser.parse_args()
    found = [
        hit for hit in (*hits_in_pages(), *hits_in_code()) if hit.file.startswith(given.folder)
    ]
    if given.list:
        for hit in found:
            sys.stdout.write(f"{hit.file}:{hit.line}: {hit.pattern}: {hit.text[:80]}\n")
    for folder, count in sorted(Counter(map(_folder, found)).items()):
        sys.stdout.write(f"{count:6}  {folder}\n")
    sys.stdout.write(f"{len(found):6}  in all\n")


if __name__ == "__main__":
    main()
