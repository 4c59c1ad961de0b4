"""Recurring rules on the page: their list, its filters and pages, and their buttons."""

import html
import importlib.abc
import re
import sys
from datetime import datetime, timezone
from itertools import chain
from types import SimpleNamespace

import pytest

from celery_delayq import DelayQ
from celery_delayq.contrib.rules import face
from celery_delayq.core import leaves
from tests.rules.support import every as set_rule
from tests.rules.support import set_back, set_fields, write
from tests.support.shards import each
from tests.web.support import NEXT, walk

DAILY = "0 9 * * *"


@pytest.fixture
def every(app):
    """Set a rule: ``every("digest", tags=["mail"])``."""

    def every(name, schedule=DAILY, **options):
        options.setdefault("tz", "Europe/Berlin")
        signature = app.tasks["shop.remind"].s(1)
        return set_rule(app.delayq, name, signature, schedule, replace=True, **options)

    return every


@pytest.fixture
def digest(every):
    return every("digest")


def names(page):
    """The names of the rules on a page, in its order."""
    return re.findall(r'<tr><th scope="row"><strong>(.*?)</strong>', page.html)


def skipped(page):
    """The runs that a rule is said to skip."""
    part = page.html.partition("skipped:")[2].partition("</span>")[0]
    return [datetime.fromisoformat(text) for text in re.findall('datetime="(.*?)"', part)]


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
    times = [moment.isoformat(timespec="milliseconds") for moment in rule.next]
    assert re.findall(r'<time datetime="([^"]*)"', digest) == times
    for text in ("shop.remind", f"<code>{DAILY}</code>", "Europe/Berlin"):
        assert text in digest
    assert 'class="badge' not in digest  # it is at work
    assert "<code>every 3600 s</code>" in poll
    assert "Europe/Berlin" not in poll  # the zone means nothing for an interval
    assert "2 rules on this page" in page.text


def test_a_rule_leads_to_its_waiting_runs_and_a_run_to_its_rule(app, browser, every, digest):
    every("other")

    runs = browser.get(browser.get("/rules").url(r'href="(/tasks\?tag=every:digest)"'))
    [task_id] = waiting(app, "digest")
    assert runs.ids == [task_id]
    task = browser.get("/task", id=task_id)
    assert "A run of rule digest" in task.text
    page = browser.get(task.url(r'A run of rule <a href="([^"]*)"'))

    assert names(page) == ["digest"]
    assert names(browser.get(page.url(r'href="([^"]*)">All rules'))) == ["digest", "other"]


def test_a_task_without_a_rule_names_none(browser, scheduled):
    scheduled("a", tags=["everyday"])
    assert "A run of rule" not in browser.get("/task?id=a").text


@pytest.mark.parametrize(
    ("what", "task_id"), [("handed over", "run-1"), ("dead", "run-1"), ("unknown", "")]
)
def test_the_last_run_leads_to_its_task(browser, every, monkeypatch, what, task_id):
    due = datetime(2000, 1, 31, 9, tzinfo=timezone.utc)
    last = SimpleNamespace(id=task_id, due=due, what=what)
    monkeypatch.setattr(face.Rule, "last_run", lambda _: last)
    every("digest")
    page = browser.get("/rules")
    assert f"31 Jan 2000 09:00 {what}" in page.text
    links = re.findall(r'href="(/task(?:\?[^"]*)?)"', page.html)
    assert links == (["/task?id=run-1"] if task_id else [])


def test_a_source_has_a_column_only_if_a_rule_has_one(browser, every, digest, redis):
    every("other")
    assert "Source" not in browser.get("/rules").text
    set_fields(redis, "digest", source=lambda _: "redbeat")
    assert re.search(r">Source<.*>redbeat<", browser.get("/rules").html, re.DOTALL)


def test_trouble_is_said_with_its_reason(browser, digest, redis):
    for rules, troubles in zip(each("rules"), each("rules_trouble"), strict=True):
        if redis.hexists(rules, "digest"):
            redis.hset(troubles, "digest", "1 the task <x> takes other arguments")
    page = browser.get("/rules")
    assert "trouble the task <x> takes other arguments" in page.text
    assert "at work" not in page.text


def test_a_rule_of_a_later_version_is_named_and_keeps_no_other_from_the_page(browser, every, redis):
    every("<new>", tags=["x"])
    every("old", tags=["x"])
    set_fields(redis, "<new>", plan=lambda plan: plan.replace("[1,", "[99,", 1))
    page = browser.get("/rules")
    assert names(page) == ["old"]
    assert "This version cannot read rule <new>." in page.text
    assert names(browser.get("/rules?tag=x")) == ["old"]


@pytest.mark.parametrize("is_gone", [False, True], ids=["being removed", "gone"])
def test_a_rule_that_is_removed_is_not_listed(browser, every, digest, redis, is_gone):
    every("stays")
    if is_gone:
        digest.remove()
    else:
        set_fields(redis, "digest", flags=lambda _: "-r")
    assert names(browser.get("/rules")) == ["stays"]
    page = browser.get("/rules?only=digest")
    assert (page.said, names(page)) == ("There is no rule digest.", [])


def test_rules_are_filtered_by_name_and_by_tag(browser, every):
    every("Digest:1", tags=["mail"])
    every("digest:2")
    every("poll", tags=["mail"])

    assert names(browser.get("/rules?name=diGEST")) == ["Digest:1", "digest:2"]
    assert names(browser.get("/rules?tag=mail")) == ["Digest:1", "poll"]
    assert names(browser.get("/rules?tag=mail&name=dig")) == ["Digest:1"]
    assert browser.get("/rules?tag=mai").said == "No rule matches."
    page = browser.get("/rules?tag=mail")
    assert names(browser.get(page.url(r'<a class="tag" href="([^"]*)"'))) == ["Digest:1", "poll"]


def test_few_rules_are_sorted_and_have_pages(browser, every, limits):
    limits(rules_page=2)
    for name in ("e", "b", "a", "d", "c"):
        every(name, tags=["x"] if name != "b" else [])

    first = browser.get("/rules?tag=x")
    last = browser.get(first.url(NEXT))

    seen = [names(first), names(last)]
    assert seen == [["a", "c"], ["d", "e"]]
    assert last.url(NEXT) is None
    assert names(browser.get(last.url(r'href="([^"]*)">First page'))) == ["a", "c"]


def pages_of(browser, path):
    """The names on each page of a list, which says that it is long."""
    pages = [*walk(browser, browser.get(path), NEXT)]
    assert all("There are more than" in page.text for page in pages)
    return [names(page) for page in pages]


@pytest.fixture
def hundreds(app, every, limits):
    """More rules than are sorted; a page ends after the first slice that brings one."""
    limits(rules_sorted=299, rules_page_ends=1)
    for number in range(300):
        every(f"r{number:03}", tags=["x"] if number < 5 else [])
    return [f"r{number:03}" for number in range(300)]


def test_many_rules_are_read_slice_by_slice(browser, hundreds):
    seen = pages_of(browser, "/rules")
    assert len(seen) >= 3
    assert sorted({*chain(*seen)}) == hundreds
    assert sorted(chain(*pages_of(browser, "/rules?tag=x"))) == hundreds[:5]


def test_a_search_among_many_rules_ends_after_a_while_and_goes_on(browser, hundreds, limits):
    limits(web_others_s=0, rules_page_ends=1000)
    [where] = [at for at, some in enumerate(pages_of(browser, "/rules")) if "r299" in some]
    seen = pages_of(browser, "/rules?name=R299")
    assert [at for at, some in enumerate(seen) if some] == [where]
    assert len(seen) > 1


def test_a_place_behind_the_end_has_no_rules(browser, digest):
    assert names(browser.get("/rules", place="99:0")) == []


@pytest.fixture
def without_cronsim(app, monkeypatch):
    """As if cronsim was not installed, in a process that has not looked at rules."""

    class Missing(importlib.abc.MetaPathFinder):
        def find_spec(self, name, *_):
            if name == "cronsim":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    for name in [*sys.modules]:
        if name == "cronsim" or name.startswith("celery_delayq.contrib.rules."):
            monkeypatch.delitem(sys.modules, name)
    app.delayq.__class__ = type("Unused", (DelayQ,), leaves.methods())


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


# The buttons.

HOSTILE = '<b>"&/?#%2F é' + chr(0x202E) + "\n{}'; "
LONG = "é" * 100  # 200 bytes


def act(page, name):
    """The URL to which the buttons of a rule post."""
    return page.action_with(f'aria-label="Run now: {name}"')


def press(browser, name, action, path="/rules"):
    return browser.change(act(browser.get(path), name), action=action)


def buttons(page):
    return re.findall(r'<button name="action"[^>]*>([^<]*)<', page.html)


def test_a_rule_is_paused_and_resumed(app, browser, digest, changed):
    page = press(browser, "digest", "pause")

    assert (page.status, page.said) == (200, "rule digest is paused")
    assert ">paused</span>" in page.html
    assert waiting(app, "digest") == []
    assert buttons(page) == ["Run now", "Resume", "Remove…"]
    page = press(browser, "digest", "resume")

    assert page.said == "rule digest is resumed"
    write(app.delayq)
    assert buttons(page) == ["Skip next", "Run now", "Pause", "Remove…"]
    assert len(waiting(app, "digest")) == 1
    assert [(one["user"], one["action"], one["target"], one["answer"]) for one in changed] == [
        ("alice", "pause", {"rule": "digest"}, True),
        ("alice", "resume", {"rule": "digest"}, True),
    ]


def test_the_answer_stands_on_the_page_with_the_button(browser, every):
    for name in ("digest", "other", "poll"):
        every(name, tags=["x"] if name != "poll" else [])
    assert names(press(browser, "digest", "pause", "/rules?only=digest")) == ["digest"]
    assert names(press(browser, "digest", "resume", "/rules?tag=x")) == ["digest", "other"]
    wrong = browser.change(act(browser.get("/rules?tag=x"), "digest"), action="eat")
    assert (wrong.status, names(wrong)) == (400, ["digest", "other"])


def test_the_next_run_is_skipped_by_the_user_and_then_the_one_after_it(
    app, browser, digest, changed
):
    [run] = waiting(app, "digest")

    page = press(browser, "digest", "skip")

    first, second, *_ = [f"{moment:%Y-%m-%d %H:%M:%S} UTC" for moment in digest.next]
    assert page.said == f"rule digest: the run of {first} is skipped"
    assert waiting(app, "digest") == []
    assert page.url(r'href="([^"]*)">That run') == f"/task?id={run}"
    assert "That run" not in browser.get("/rules", run=run).text  # no answer names it
    assert [event.actor for event in app.delayq.history(1)] == ["alice"]
    assert skipped(page) == [*digest.next[:1]]
    page = press(browser, "digest", "skip")
    assert page.said == f"rule digest: the run of {second} is skipped"
    assert skipped(page) == [*digest.next[:2]]
    page = press(browser, "digest", "unskip")
    assert page.said == "rule digest: the skipped runs come again"
    write(app.delayq)
    assert app.delayq.rule("digest").next == digest.next
    assert [one["answer"] for one in changed] == [True, True, True]


def test_a_rule_gets_another_schedule_on_its_own_page_and_the_one_of_code_again(
    app, browser, digest, changed
):
    link = browser.get("/rules").url(r'href="([^"]*)">Change the schedule…</a>')
    page = browser.get(link)
    path = page.action_with("Change schedule")
    page = browser.change(path, action="edit", schedule="0 6 * * 1-5", tz="Asia/Tokyo", dialect="")

    assert (page.status, page.said) == (200, "rule digest has another schedule")
    rule = app.delayq.rule("digest")
    assert (rule.schedule, rule.tz, rule.edited.by) == ("0 6 * * 1-5", "Asia/Tokyo", "alice")
    assert "changed by alice" in page.text
    assert f"code says {DAILY} Europe/Berlin" in page.text
    page = browser.change(act(page, "digest"), action="back_to_code")
    assert page.said == "rule digest has the schedule again that code says"
    assert app.delayq.rule("digest").edited is None
    assert [(one["user"], one["action"]) for one in changed] == [
        ("alice", "edit"),
        ("alice", "back_to_code"),
    ]


@pytest.mark.parametrize(
    ("field", "value"), [("schedule", "0 25 * * *"), ("tz", "Mars/New"), ("schedule", "0 6 1 * 1")]
)
def test_a_schedule_that_is_none_comes_back_to_its_field(app, browser, digest, field, value):
    path = browser.get("/rules?only=digest").action_with("Change schedule")
    given = {"schedule": "0 6 * * *", "tz": "UTC", "dialect": "", field: value}
    page = browser.change(path, action="edit", **given)
    assert page.status == 400
    assert re.search(rf'<input id="{field}"[^>]*aria-invalid="true"', page.html)
    assert f'value="{value}"' in page.html
    assert app.delayq.rule("digest").edited is None


def test_a_run_that_nobody_wrote_or_delivered_is_shown_as_overdue(app, browser, digest, redis):
    set_back(app.delayq, redis, "digest", days=2)
    page = browser.get("/rules")
    assert ">overdue</span>" in page.html
    assert "no worker has written or delivered its run" in page.text
    write(app.delayq)
    app.delayq.hand_over()
    assert "overdue" not in browser.get("/rules").text


def test_a_rule_runs_now_beside_its_schedule(app, browser, digest, changed):
    before = waiting(app, "digest")
    page = press(browser, "digest", "run")
    run = re.fullmatch(r"rule digest runs now, as task (\S+)", page.said)[1]
    assert page.url(r'href="([^"]*)">That run') == f"/task?id={run}"
    assert app.delayq.hand_over() == 1
    assert waiting(app, "digest") == before
    assert [(one["action"], one["answer"]) for one in changed] == [("run", True)]


def test_a_rule_is_removed_after_a_question(app, browser, every, changed):
    every("digest", tags=["x"])
    every("other", tags=["x"])
    page = press(browser, "digest", "remove", "/rules?tag=x")

    assert page.status == 200
    assert "Remove rule digest? Its waiting runs are cancelled" in page.text
    assert app.delayq.rule("digest")
    assert names(browser.get(page.url(r'href="([^"]*)">Keep it'))) == ["digest", "other"]
    assert changed == []
    page = browser.change(page.action_with("Keep it"), action="remove", sure="1")

    assert (page.status, page.said) == (200, "rule digest is removed")
    assert names(page) == ["other"]
    assert app.delayq.rule("digest") is None
    assert waiting(app, "digest") == []
    assert [(one["action"], one["answer"]) for one in changed] == [("remove", True)]


@pytest.mark.parametrize("action", ["skip", "edit", "run", "pause", "remove"])
def test_a_rule_that_was_changed_meanwhile_is_left(app, browser, every, digest, action):
    seen = act(browser.get("/rules"), "digest")
    every("digest", "0 10 * * *")
    before = waiting(app, "digest")
    page = browser.change(seen, action=action, sure="1")
    assert page.status == 409
    assert page.said == ("rule digest was changed since you loaded the page; nothing was done")
    assert (app.delayq.rule("digest").is_paused, waiting(app, "digest")) == (False, before)


def test_a_button_of_a_removed_rule_says_that_it_is_gone(app, browser, digest):
    seen = act(browser.get("/rules"), "digest")
    app.delayq.rule("digest").remove()
    page = browser.change(seen, action="pause")
    assert (page.status, page.said) == (409, "there is no rule digest any more")


def test_a_run_whose_arguments_do_not_fit_its_task_is_refused(app, browser, digest):
    del app.tasks["shop.remind"]

    @app.task(name="shop.remind")
    def remind():
        pass

    page = press(browser, "digest", "run")

    assert page.status == 400
    assert page.said.startswith("rule digest: ")
    assert "expected arguments that fit the task" in page.said


@pytest.mark.parametrize("name", [HOSTILE, LONG, " ", "a+b", "{rule}"])
def test_a_rule_may_have_a_name_of_any_characters(app, browser, every, name):
    every(name, tags=[HOSTILE])

    page = browser.get("/rules")
    assert "<b>" not in page.html
    paths = {*re.findall(r'<form method="post" action="([^"]*)"', page.html)}
    [path] = map(html.unescape, paths)
    assert browser.change(path, action="pause").status == 200
    assert app.delayq.rule(name).is_paused
    app.delayq.rule(name).resume()
    write(app.delayq)
    for found in ({"only": name}, {"name": name}, {"tag": HOSTILE}):
        assert len(names(browser.get("/rules", **found))) == 1
    [run] = waiting(app, name)
    task = browser.get("/task", id=run)
    assert len(names(browser.get(task.url(r'A run of rule <a href="([^"]*)"')))) == 1
    asked = browser.change(browser.get("/rules").action_with("Remove"), action="remove")
    done = browser.change(asked.action_with("Keep it"), action="remove", sure="1")
    assert done.status == 200
    assert app.delayq.rule(name) is None


def test_an_answer_that_no_url_has_room_for_is_said_all_the_same(app, browser, digest):
    revision = app.delayq.rule("digest").revision
    path = f"/rules?rule=digest&revision={revision}&name={'x' * 4000}"
    page = browser.post(path, action="pause")
    assert (page.status, page.said) == (200, "rule digest is paused")
