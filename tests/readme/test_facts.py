"""A fact stands on one page, and others link to it by its name; no section grows beyond its bound.

Each row of ``FACTS`` names a fact, a pattern that finds it on any page, and the one page that may
tell it. Before you add a row, put the sentence into another page, and see the test fail.
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
    Fact("rate and lateness", r"40,000 tasks a second|1\.6 ms in the median", "why"),
    Fact("memory of a waiting task", r"\b460 bytes\b", "why"),
    Fact("what an eta task cannot", r"list it only while workers run", "why"),
    Fact("memory of an eta in workers", r"\beta\b.{,9}86 MB", "README"),
    # Guide, and coming from.
    Fact(
        "a relative expiry",
        r"Celery counts it from the call|counts from the due time and moves",
        "guide/schedule",
    ),
    Fact("a call while Redis refuses", r"task_publish_retry_policy", "guide/schedule"),
    Fact("a call while the backend is down", r"about 20 s|which takes 20 s", "guide/schedule"),
    Fact("a naive time in Celery", r"naive `eta`[^.|]*UTC", "guide/times"),
    Fact("forms of a typed time", r"`'?26\.11\. 9:00'?`", "guide/times"),
    Fact("synchronised clocks", r"Synchronise\b.*?\bNTP", "guide/times"),
    Fact(
        "whole milliseconds",
        r"rounded up to the millisecond|rounded up, so that no task",
        "guide/times",
    ),
    Fact("an answer of a change", r"is true only for `DONE`", "guide/change"),
    Fact("memory of an undo", r"1,230 bytes", "guide/change"),
    Fact("speed of a bulk", r"ten times as fast", "guide/many"),
    Fact("cost of a selection", r"5 s of Redis's time|reads? only the matches", "guide/many"),
    Fact(
        "a pause and lateness",
        r"pause[^.]*does not count as \[?lateness|Pauses? do(es)? not count|A pause counts only",
        "guide/many",
    ),
    Fact(
        "a key after a worker's death",
        r"ten minutes (later|after its worker)|free within ten minutes",
        "guide/keys",
    ),
    Fact("at most two runs", r"at most two runs", "guide/keys"),
    Fact(
        "rules that go with their code", r"ten minutes after the last old worker", "guide/recurring"
    ),
    Fact("a launch that fails", r"then every five minutes", "guide/workflows"),
    Fact("a chord that waits too long", r"result_chord_expires", "guide/workflows"),
    Fact("no transaction of a test commits", r"captureOnCommitCallbacks", "guide/django"),
    Fact("a bound of changes", r"a tenth of the tasks under", "guide/reconcile"),
    Fact("a store that refuses captured calls", r"nine times as long", "coming-from/from-eta"),
    Fact(
        "a broker's timeout for held messages",
        r"`?consumer_timeout`?[^.]*half an hour|half an hour on SQS",
        "coming-from/leaving",
    ),
    # Operate, and the runbook.
    Fact("eviction", r"allkeys|noeviction|appendonly yes", "operate/redis"),
    Fact(
        "what a crash loses",
        r"without persistence|since the last snapshot",
        "operate/redis",
        first=True,
    ),
    Fact("what a failover loses", r"unreplicated changes", "operate/redis", first=True),
    Fact("rights in a Cluster", r"\+cluster\|slots", "operate/redis"),
    Fact("waiting for the disk", r"WAITAOF\W+Redis 7\.2", "operate/redis"),
    Fact("connections of a scanner", r"holds? two connections", "operate/redis"),
    Fact("elections", r"cluster-node-timeout", "operate/cluster"),
    Fact("a reshard that ended", r"reshard --abort", "operate/cluster"),
    Fact("lines of health", r"overdue for too long|nearly full, or deletes", "operate/watching"),
    Fact("gauges and counters", r"use `(max|sum)`", "operate/watching"),
    Fact("probes", r"failureThreshold|use it for liveness", "operate/running"),
    Fact("how systemd stops a worker", r"SIGQUIT", "operate/running"),
    Fact("size of a message on SQS", r"750_000", "operate/running"),
    Fact("what a dump lacks", r"not in a dump|dump has no keys", "operate/moving"),
    Fact("an older copy", r"since the copy|between the copy and", "operate/moving"),
    Fact("the format now", r"writes and reads format", "operate/moving"),
    Fact("the net", r"1, 2, 4 … minutes", "operate/deploys"),
    Fact("what preflight compares", r"typing=False", "operate/deploys"),
    Fact(
        "who can read the store",
        r"readers of the store|as secret and as powerful",
        "operate/security",
    ),
    Fact(
        "who can write to the store",
        r"writers of the store|run any task of the app",
        "operate/security",
    ),
    Fact("forms of the page", r"Sec-Fetch-Site", "operate/page"),
    Fact("two scanners", r"at least two scanners|so that two scanners run", "operate/checklist"),
    Fact("a full Redis and workers", r"OutOfMemoryError", "runbook"),
    Fact("a thread that ended", r"no `Exception`", "runbook"),
    # Reference, and concepts.
    Fact("never early", r"never before\W+its due time", "concepts/guarantees", first=True),
    Fact("which delivery is exactly once", r"exactly once\W+if", "concepts/guarantees", first=True),
    Fact("how soon scanners are back", r"within five seconds", "concepts/guarantees"),
    Fact("how often a refused task is tried", r"eight refusals", "concepts/guarantees"),
    Fact("an outage is no attempt", r"counts? no attempt|no attempt counts", "concepts/guarantees"),
    Fact(
        "make tasks idempotent",
        r"(make|let) (such|these|your) tasks idempotent|have to be idempotent",
        "concepts/duplicates",
    ),
    Fact(
        "a quarter for tasks that just fell due",
        r"up to a quarter of each batch",
        "concepts/how-it-works",
    ),
    Fact("memory of answers", r"240 MB", "reference/settings"),
    Fact("a prefix for each app", r"tasks under its prefix", "reference/settings"),
    Fact("how often many scanners scan", r"more than 100 scanners", "reference/settings"),
    Fact("which versions", r"3\.10 to 3\.14", "reference/versions", first=True),
    Fact("how long names stay", r"stay until 2\.0", "reference/versions", first=True),
    # Inside.
    Fact("who wakes if one is dead", r"in case the one with the promise", "inside/stored-format"),
    Fact("how much of a message is a template", r"\b956 bytes", "inside/stored-format"),
    Fact("how shards close", r"closes the shards level by level", "inside/protocol"),
    Fact("how a leaf is removed", r"To remove a leaf", "inside/house"),
    Fact("order of writes", r"decides what a stop leaves", "inside/one-call"),
)

# The most words of a section, as `wc -w` counts them; the first has the pages in no folder.
BOUNDS = {
    "start": 1_400,
    "guide": 7_900,
    "coming-from": 1_900,
    "operate": 7_600,
    "runbook": 1_500,
    "reference": 6_200,
    "concepts": 2_300,
    "inside": 4_600,
}
ALL, README_WORDS = 33_000, 900


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


def test_the_documentation_is_within_its_bound():
    assert words(*PAGES) <= ALL


def test_the_readme_is_within_its_bound():
    assert words(README) <= README_WORDS
