"""A fact stands on one page, and others link to it by its name; no section grows beyond its bound.

A row of ``FACTS`` has a name, a pattern that finds the fact wherever it is told, and the page that
may tell it. Before you add a row, put the sentence into another page, and see the test fail.
"""

import re
from typing import NamedTuple

import pytest

from tests.readme.document import CONTRIBUTING, DOCS, PAGES, README, SECURITY


class Fact(NamedTuple):
    """One fact; *place* is a page without its ending, and *first* lets the README tell it, too."""

    name: str
    pattern: str
    place: str
    first: bool = False


FACTS = (
    # Start.
    Fact("code in a process", r"18,800|\bof 167 modules", "why"),
    Fact("memory of an eta in workers", r"\beta\b.{,9}86 MB", "README"),
    # Guide, and coming from.
    # Operate, and the runbook.
    # Reference, and concepts.
    # Inside.
    Fact("the sleep of many scanners", r"sleep for up to 28 seconds", "inside/stored-format"),
    Fact("how much of a message is a template", r"\b956 bytes", "inside/stored-format"),
    Fact("how shards close", r"closes the shards level by level", "inside/protocol"),
    Fact("how a leaf is removed", r"To remove a leaf", "inside/house"),
    Fact("where user code runs", r"user code runs only", "inside/house"),
    Fact("order of writes", r"decides what a stop leaves", "inside/one-call"),
)

# The most words of a section, as `wc -w` counts them; the first has the pages in no folder.
BOUNDS = {
    "start": 1_400,
    "guide": 12_700,
    "coming-from": 3_600,
    "operate": 15_200,
    "runbook": 2_700,
    "reference": 9_400,
    "concepts": 4_600,
    "inside": 5_700,
}
README_WORDS = 1_100


def said(document):
    """The prose of a document on one line, with links as their words."""
    return " ".join(re.sub(r"\]\([^)]*\)", "]", document.prose).split())


TOLD = {
    document.name.removeprefix(DOCS).removesuffix(".md"): said(document)
    for document in (README, *PAGES, CONTRIBUTING, SECURITY)
}


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.name)
def test_a_fact_is_told_on_its_page_alone(fact):
    found = {name for name, text in TOLD.items() if re.search(fact.pattern, text, re.IGNORECASE)}
    assert found - ({"README"} if fact.first else set()) == {fact.place}


def section(document):
    folder, _, rest = document.name.removeprefix(DOCS).rpartition("/")
    return folder or ("runbook" if rest == "runbook.md" else "start")


def words(*documents):
    return sum(len(document.text.split()) for document in documents)


def test_every_section_has_a_bound():
    assert {section(document) for document in PAGES} == {*BOUNDS}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_section_is_within_its_bound(name):
    assert words(*(one for one in PAGES if section(one) == name)) <= BOUNDS[name]


def test_the_readme_is_within_its_bound():
    assert words(README) <= README_WORDS
