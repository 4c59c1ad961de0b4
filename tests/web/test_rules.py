"""The list of recurring rules on the page, its filters and pages."""

import importlib.abc
import re
import sys
from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest

from celery_delayq.contrib.rules import face, listing
from celery_delayq.contrib.web import looking
from tests.support.shards import each

NEXT = r'rel="next" href="([^"]*)"'
DAILY = "0 9 * * *"


@pytest.fixture
def every(app):
    """Set a rule: ``every("digest", tags=["mail"])``."""

    def every(name, schedule=DAILY, **options):
        options.setdefault("tz", "Europe/Berlin")
        signature = app.tasks["shop.remind"].s(1)
        return app.delayq.every(name, signature, schedule, replace=True, **options)

    return every


def names(page):
    """The names of the rules on a page, in its order."""
    return re.findall(r'<tr><th scope="row">(.*?)<br>', page.html)


def waiting(app, name):
    return [task.id for task in app.delayq.tasks(tag=f"every:{name}")]


def test_without_rules_the_page_says_how_to_set_one(browser):
    page = browser.get("/rules")

    assert page.said == "There are no rules. delayq.every() sets one."
    assert "<table" not in page.html
    assert 'aria-current="page">Rules</a>' in page.html


def test_a_rule_has_its_task_schedule_zone_and_next_three_times(browser, every):
    rule = every("digest", tags=["mail"])
    every("poll", 3600)

    page = browser.get("/rules")

    assert names(page) == ["digest", "poll"]
    digest, poll = page.html.split('<tr><th scope="row"')[1:]
    times = [f"{moment:%Y-%m-%d %H:%M:%S} UTC" for moment in rule.next]
    assert re.findall(r">([^<]* UTC)</time>", digest) == times
    assert digest.count("</time><br>") == 2
    for text in ("shop.remind", f"<code>{DAILY}</code>", "Europe/Berlin", ">at work<"):
        assert text in digest
    assert "<code>every 3600 s</code>" in poll
    assert "Europe/Berlin" not in poll  # the zone means nothing for an interval
    assert "2 rules on this page" in page.text


def test_a_rule_leads_to_its_waiting_runs_and_a_run_to_its_rule(app, browser, every):
    every("digest")
    every("other")

    runs = browser.get(browser.get("/rules").url(r'href="(/tasks\?tag=every:digest)"'))
    [task_id] = waiting(app, "digest")
    assert runs.html.count(f'<th scope="row" class="short" title="{task_id}">') == 1
    task = browser.get("/task", id=task_id)
    assert "A run of rule digest" in task.text
    page = browser.get(task.url(r'A run of rule <a href="([^"]*)"'))

    assert names(page) == ["digest"]
    assert names(browser.get(page.url(r'href="([^"]*)">All rules'))) == ["digest", "other"]


def test_a_task_without_a_rule_names_none(browser, scheduled):
    scheduled("a", tags=["everyday"])
    assert "A run of rule" not in browser.get("/task?id=a").text


def test_a_rule_that_is_gone(browser, every):
    every("digest").remove()
    page = browser.get("/rules?only=digest")
    assert page.said == "There is no rule digest."
    assert names(page) == []


@pytest.mark.parametrize(
    ("what", "task_id"), [("handed over", "run-1"), ("dead", "run-1"), ("unknown", "")]
)
def test_the_last_run_leads_to_its_task(browser, every, monkeypatch, what, task_id):
    due = datetime(2030, 1, 31, 9, tzinfo=timezone.utc)
    last = SimpleNamespace(id=task_id, due=due, what=what)
    monkeypatch.setattr(face.Rule, "last_run", lambda _: last)
    every("digest")

    page = browser.get("/rules")

    assert f"2030-01-31 09:00:00 UTC {what}" in page.text
    links = re.findall(r'href="(/task(?:\?[^"]*)?)"', page.html)
    assert links == (["/task?id=run-1"] if task_id else [])


@pytest.fixture
def shown_as(monkeypatch):
    """Let the page read rules with other fields: ``shown_as("digest", source="beat")``."""
    own = listing.rule_of

    def shown_as(name, **fields):
        def rule_of(services, stored, now):
            rule = own(services, stored, now)
            return replace(rule, **fields) if rule.name == name else rule

        monkeypatch.setattr(listing, "rule_of", rule_of)

    return shown_as


def test_a_source_has_a_column_only_if_a_rule_has_one(browser, every, shown_as):
    every("digest")
    every("other")
    assert "Source" not in browser.get("/rules").text

    shown_as("digest", source="redbeat")

    assert re.search(r">Source<.*>redbeat<", browser.get("/rules").html, re.DOTALL)


def test_trouble_is_said_with_its_reason(browser, every, shown_as):
    every("digest")
    shown_as("digest", trouble="the task <x> takes other arguments")

    page = browser.get("/rules")

    assert "trouble the task <x> takes other arguments" in page.text
    assert "at work" not in page.text


def rewrite(redis, name, old, new):
    """Change the row of a rule in the store."""
    for key in each("rules"):
        if row := redis.hget(key, name):
            assert old in row
            redis.hset(key, name, row.replace(old, new, 1))


def test_a_rule_of_a_later_version_is_named_and_keeps_no_other_from_the_page(browser, every, redis):
    every("<new>", tags=["x"])
    every("old", tags=["x"])
    rewrite(redis, "<new>", b'"plan":"[1,', b'"plan":"[99,')

    page = browser.get("/rules")

    assert names(page) == ["old"]
    assert "This version cannot read rule <new>." in page.text
    assert names(browser.get("/rules?tag=x")) == ["old"]


def test_a_rule_that_is_being_removed_is_not_listed(browser, every, redis):
    every("gone")
    every("stays")
    rewrite(redis, "gone", b'"flags":"-"', b'"flags":"-r"')

    assert names(browser.get("/rules")) == ["stays"]
    assert browser.get("/rules?only=gone").said == "There is no rule gone."


def test_a_filter_by_name_and_by_tag(browser, every):
    every("Digest:1", tags=["mail"])
    every("digest:2")
    every("poll", tags=["mail"])

    assert names(browser.get("/rules?name=diGEST")) == ["Digest:1", "digest:2"]
    assert names(browser.get("/rules?tag=mail")) == ["Digest:1", "poll"]
    assert names(browser.get("/rules?tag=mail&name=dig")) == ["Digest:1"]
    assert browser.get("/rules?tag=mai").said == "No rule matches."
    page = browser.get("/rules?tag=mail")
    assert names(browser.get(page.url(r'<a class="tag" href="([^"]*)"'))) == ["Digest:1", "poll"]


def test_few_rules_are_sorted_and_have_pages(browser, every, monkeypatch):
    monkeypatch.setattr(listing, "PAGE", 2)
    for name in ("e", "b", "a", "d", "c"):
        every(name, tags=["x"] if name != "b" else [])

    first = browser.get("/rules?tag=x")
    last = browser.get(first.url(NEXT))

    seen = [names(first), names(last)]
    assert seen == [["a", "c"], ["d", "e"]]
    assert last.url(NEXT) is None
    assert names(browser.get(last.url(r'href="([^"]*)">First page'))) == ["a", "c"]


def walk(browser, path):
    """Follow a list to its end; return the names on each page."""
    seen = []
    for _ in range(50):
        page = browser.get(path)
        assert "There are more than" in page.text
        seen.append(names(page))
        path = page.url(NEXT)
        if not path:
            return seen
    pytest.fail("the list has no end")


@pytest.fixture
def hundreds(app, every, monkeypatch):
    """More rules than are sorted; a page ends after the first slice that brings one."""
    for name, value in (("SORTED", 299), ("_ENOUGH", 1)):
        monkeypatch.setattr(listing, name, value)
    for number in range(300):
        every(f"r{number:03}", tags=["x"] if number < 5 else [])
    return [f"r{number:03}" for number in range(300)]


def test_many_rules_are_read_slice_by_slice(browser, hundreds):
    seen = walk(browser, "/rules")

    assert len(seen) >= 3
    assert sorted({name for some in seen for name in some}) == hundreds
    assert sorted(name for some in walk(browser, "/rules?tag=x") for name in some) == hundreds[:5]


def test_a_search_among_many_rules_ends_after_a_while_and_goes_on(browser, hundreds, monkeypatch):
    monkeypatch.setattr(looking, "SECOND", 0)
    monkeypatch.setattr(listing, "_ENOUGH", 1000)
    [where] = [at for at, some in enumerate(walk(browser, "/rules")) if "r299" in some]

    seen = walk(browser, "/rules?name=R299")

    assert [at for at, some in enumerate(seen) if some] == [where]
    empty = next((at for at, some in enumerate(seen) if not some), None)
    assert empty is not None


@pytest.mark.parametrize("place", ["x", "0", "-1:0", "0:-1", "0:x", "1" * 3 + ":0"])
def test_a_place_that_is_none(browser, place):
    assert browser.get("/rules", place=place).status == 400


def test_a_place_behind_the_end_has_no_rules(browser, every):
    every("digest")
    assert names(browser.get("/rules", place="99:0")) == []


@pytest.fixture
def without_cronsim(monkeypatch):
    """As if cronsim was not installed, in a process that has not looked at rules."""

    class Missing(importlib.abc.MetaPathFinder):
        def find_spec(self, name, *_):
            if name == "cronsim":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    for name in [*sys.modules]:
        if name == "cronsim" or name.startswith("celery_delayq.contrib.rules."):
            monkeypatch.delitem(sys.modules, name)


def test_without_cronsim_one_sentence_says_how_to_install_it(browser, scheduled, without_cronsim):
    scheduled("a", tags=["every:digest"])
    sentence = "Recurring tasks need one more package: pip install 'celery_delayq[rules]'"

    page = browser.get("/rules")

    assert (page.status, page.said) == (200, sentence)
    assert "<table" not in page.html
    page = browser.post("/rules?rule=digest", action="pause")
    assert (page.status, page.said) == (409, sentence)
    for path in ("/", "/tasks", "/task?id=a", "/paused", "/history"):
        assert browser.get(path).status == 200
