"""The README, taken apart into its fenced blocks and its tables."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


@dataclass(frozen=True)
class Block:
    """One fenced block: where it stands, and its text."""

    section: str
    language: str
    line: int
    text: str


@cache
def blocks() -> tuple[Block, ...]:
    return tuple(_blocks())


def _blocks() -> Iterator[Block]:
    section, opened, inside = "", None, []
    for number, line in enumerate(README.read_text("utf-8").splitlines(), start=1):
        if opened is not None:
            if line == "```":
                yield Block(section, opened[0], opened[1], "\n".join(inside) + "\n")
                opened, inside = None, []
            else:
                inside.append(line)
        elif line.startswith("```"):
            opened = (line[3:], number + 1)
        elif line.startswith("#"):
            section = line.lstrip("# ")


def written_in(language: str, section: str | None = None) -> list[Block]:
    """The blocks in one language, of one section or of all."""
    return [
        block
        for block in blocks()
        if block.language == language and section in (None, block.section)
    ]


def parts(section: str) -> str:
    """The text of one section, its subsections included."""
    text = README.read_text("utf-8")
    start = re.search(rf"^(#+) {re.escape(section)}$", text, re.MULTILINE)
    assert start, f"the README has no section {section!r}"
    rest = text[start.end() :]
    end = re.search(rf"^#{{1,{len(start[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def rows(section: str) -> list[list[str]]:
    """The cells of a section's tables, without heads and rules."""
    lines = [line for line in parts(section).splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    rules = [at for at, row in enumerate(cells) if set("".join(row)) <= set("-: |")]
    heads = [at - 1 for at in rules]
    return [row for at, row in enumerate(cells) if at not in rules + heads]
