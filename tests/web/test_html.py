"""Each page is sound HTML that a screen reader can read: labels, headings, captions, landmarks."""

from collections import Counter
from html.parser import HTMLParser

import pytest

from tests.app.support import LONG_AGO

VOID = {"meta", "link", "input", "rect", "br"}
FIELDS = ("input", "select", "textarea")


class Reader(HTMLParser):
    """Collects the elements of a page, each with its attributes, and checks that they nest."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.texts = [], [], Counter()
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID or tag == "rect":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if data.strip() and self.open:
            self.texts[self.open[-1]] += 1

    def all(self, *tags):
        return [attributes for tag, attributes in self.elements if tag in tags]


@pytest.fixture
def pages(app, browser, scheduled):
    """A response of each kind."""
    scheduled("a", key="k", tags=["blue"], at=app.delayq.counts().now_ms / 1000 + 1800)
    scheduled("b", at=LONG_AGO, queue="mail")
    app.delayq.pause(queue="mail")
    app.delayq.every("r", app.tasks["shop.remind"].s(1), "0 9 * * *", tags=["blue"])
    counting = browser.get(browser.post("/all", action="cancel").location)
    return [
        *(browser.get(path) for path in ("/", "/tasks", "/tasks?queue=mail", "/tasks?state=DEAD")),
        *(browser.get(path) for path in ("/task?id=a", "/task?id=none", "/task", "/nowhere")),
        *(
            browser.get(path)
            for path in ("/paused", "/history", "/queues", "/key?key=k", "/tasks?after=x", "/rules")
        ),
        browser.get("/rules?only=r&asks=1"),
        counting,
        browser.get(browser.post(counting.action_with("<button")).location),
        browser.change("/selected", action="run_now", one="1 a"),
        browser.change("/selected", action="run_now", one="1 a", sure="1"),
        browser.change("/paused", action="pause", kind="everything"),
    ]


def test_each_page_is_sound(pages):
    for page in pages:
        read = Reader(page.html)
        assert page.html.startswith("<!doctype html>")
        assert read.all("html") == [{"lang": "en"}]
        assert page.title.endswith(" · tests")
        assert len(read.all("h1")) == len(read.all("main")) == len(read.all("header")) == 1
        ids = [each["id"] for _, each in read.elements if "id" in each]
        assert len(ids) == len(set(ids))


def test_each_field_has_a_label(pages):
    for page in pages:
        read = Reader(page.html)
        labelled = {each["for"] for each in read.all("label")}
        for field in read.all(*FIELDS):
            has_label = field.get("id") in labelled or field.get("aria-label")
            assert has_label or field.get("type") == "hidden", field
        ids = {each["id"] for _, each in read.elements if "id" in each}
        assert labelled <= ids
        for _, each in read.elements:
            for name in ("aria-describedby", "aria-labelledby"):
                assert set(each.get(name, "").split()) <= ids


def test_each_table_has_a_caption_and_its_headings_a_scope(pages):
    for page in pages:
        read = Reader(page.html)
        assert len(read.all("table")) == len(read.all("caption"))
        assert all(each.get("scope") in ("col", "row") for each in read.all("th"))


def test_the_navigation_marks_the_page(browser, pages):
    for path, name in (("/", "Overview"), ("/tasks", "Tasks"), ("/tasks?state=DEAD", "Dead")):
        assert browser.get(path).html.count('aria-current="page"') == 1
        assert f'aria-current="page">{name}</a>' in browser.get(path).html


def test_a_form_can_be_sent_by_its_button_alone(pages):
    for page in pages:
        read = Reader(page.html)
        assert len(read.all("button")) >= len(read.all("form"))
        assert all(each.get("method") in ("get", "post") for each in read.all("form"))
