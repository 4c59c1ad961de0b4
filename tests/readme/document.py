"""The Markdown documents, parsed into fenced blocks, tables and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = "celery_delayq/docs/"


@dataclass(frozen=True)
class Block:
    """One fenced block: its document, section and line, and its text."""

    document: str
    section: str
    language: str
    line: int
    text: str


@dataclass(frozen=True, eq=False)
class Document:
    """One document; *name* is its path in the project."""

    name: str

    @property
    def path(self) -> Path:
        return ROOT / self.name

    @property
    def text(self) -> str:
        return self.path.read_text("utf-8")

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(self._blocks())

    def _blocks(self) -> Iterator[Block]:
        section, opened, inside = "", None, []
        for number, line in enumerate(self.text.splitlines(), start=1):
            if opened is not None:
                if line == "```":
                    yield Block(self.name, section, *opened, "\n".join(inside) + "\n")
                    opened, inside = None, []
                else:
                    inside.append(line)
            elif line.startswith("```"):
                opened = (line[3:], number + 1)
            elif line.startswith("#"):
                section = line.lstrip("# ")

    def written_in(self, language: str, section: str | None = None) -> list[Block]:
        """The blocks in one language, of one section or of all."""
        return [
            block
            for block in self.blocks
            if block.language == language and section in (None, block.section)
        ]

    def parts(self, section: str) -> str:
        """The text of one section, including its subsections."""
        start = re.search(rf"^(#+) {re.escape(section)}$", self.text, re.MULTILINE)
        assert start, f"{self.name} has no section {section!r}"
        rest = self.text[start.end() :]
        end = re.search(rf"^#{{1,{len(start[1])}}} ", rest, re.MULTILINE)
        return rest[: end.start()] if end else rest

    def rows(self, section: str) -> list[list[str]]:
        """The cells of a section's tables, without headings and rules."""
        lines = [line for line in self.parts(section).splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
        rules = [at for at, row in enumerate(cells) if set("".join(row)) <= set("-: |")]
        heads = [at - 1 for at in rules]
        return [row for at, row in enumerate(cells) if at not in rules + heads]

    @property
    def prose(self) -> str:
        """The text without its fenced blocks."""
        return re.sub(r"^```.*?^```$", "", self.text, flags=re.MULTILINE | re.DOTALL)

    @property
    def links(self) -> list[str]:
        """The targets of its links, including the named ones at its end."""
        behind = re.findall(r"^\[[^\]]+\]: (\S+)$", self.prose, re.MULTILINE)
        return re.findall(r"\]\(([^)]+)\)", self.prose) + behind

    @property
    def sections(self) -> list[tuple[str, str]]:
        """The title of each section, and the part behind ``#`` in links to it."""
        heads = re.findall(r"^#+ (.*)$", self.prose, re.MULTILINE)
        return [(head, re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-")) for head in heads]

    @property
    def anchors(self) -> set[str]:
        """The part behind ``#`` in links to its sections."""
        return {anchor for _, anchor in self.sections}


def _documents() -> Iterator[Document]:
    yield from (Document("README.md"), Document("CHANGELOG.md"))
    for folder in (".github", "celery_delayq", "example_project", "tests"):
        for path in sorted((ROOT / folder).rglob("*.md")):
            yield Document(path.relative_to(ROOT).as_posix())


DOCUMENTS = {document.name: document for document in _documents()}

README = DOCUMENTS["README.md"]
TESTS = DOCUMENTS["tests/README.md"]
CHANGELOG = DOCUMENTS["CHANGELOG.md"]
CONTRIBUTING = DOCUMENTS[".github/CONTRIBUTING.md"]
SECURITY = DOCUMENTS[".github/SECURITY.md"]
FAULTS = DOCUMENTS["tests/lab/faults/README.md"]


def page(name: str) -> Document:
    """One of the documentation's pages: ``page("operate/watching")``."""
    return DOCUMENTS[f"{DOCS}{name}.md"]


PAGES = [document for name, document in DOCUMENTS.items() if name.startswith(DOCS)]


def written_in(language: str) -> list[Block]:
    """The blocks in one language, of all documents."""
    return [block for document in DOCUMENTS.values() for block in document.written_in(language)]
