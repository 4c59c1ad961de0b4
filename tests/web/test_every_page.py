"""Each page: its head, its errors, and its HTML, sound enough for a screen reader."""

import re
from html.parser import HTMLParser

import pytest

from tests.app.support import LONG_AGO
from tests.support.network import AWAY
from tests.support.ports import free_port

PAGES = "Overview Tasks Dead Paused Rules Keys History"
VIEWS = ["/", "/state", "/tasks", "/task?id=none", "/rules", "/paused", "/key?key=k"]
VIEWS += ["/history", "/keys", "/queues"]


def head_of(page):
    found = re.search(r'<header class="mast">.*?</header>', page.html, re.DOTALL)
    return " ".join(re.sub("<[^>]*>", " ", found[0]).split())


@pytest.mark.parametrize("path", VIEWS)
def test_each_page_says_whose_it_is_and_whether_all_is_well(browser, url, path):
    page = browser.get(path)
    assert re.fullmatch(
        rf"tests {PAGES} {re.escape(url)} \d\d:\d\d:\d\d in UTC not delivered in time",
        head_of(page),
    )
    assert re.search(r'<a class="badge dot red" [^>]*title="no scanner is alive: ', page.html)
    assert page.title.startswith("not delivered in time · ")
    assert page.title.endswith(" · tests")


def test_dead_tasks_are_in_the_title(browser, die):
    die("a")
    page = browser.get("/paused")
    assert page.title == "1 dead · Paused · tests"
    assert head_of(page).endswith("1 dead, 1 more")


def test_a_pause_is_in_the_head_and_the_title_at_once(app, browser, alive):
    alive(app)
    page = browser.get("/")
    assert head_of(page).endswith("in time")
    assert '<h1 id="health">Tasks are delivered in time</h1>' in page.html

    app.delayq.pause(all=True)

    page = browser.get("/")
    assert head_of(page).endswith(" paused")
    assert re.search(
        '<a class="badge dot amber" [^>]*title="everything is paused since ', page.html
    )
    assert page.title == "paused · Overview · tests"
    assert "Tasks are delivered in time" not in page.text
    [alarm] = re.findall('<li class="alarm amber">.*?</li>', page.html, re.DOTALL)
    assert re.search(r"Everything is paused since .*: no paused task is due</p>", alarm)
    assert '<a class="button" href="/paused">Pause or resume</a>' in alarm


def test_a_view_that_was_made_before_redis_went_away_is_shown(browser, between):
    between.before("counts", lambda: AWAY)

    page = browser.get("/history")

    assert page.status == 200
    head = head_of(page)
    assert head.endswith(" no answer Redis is away")
    assert page.title == "Redis is away · History · tests"


def test_a_user_without_access_learns_nothing_of_the_app(app, browse, url):
    page = browse(app, allow=lambda _: None).get("/")
    assert url not in page.html
    assert 'id="state"' not in page.html
    assert page.title == "Forbidden · delayq"


# Errors.


@pytest.fixture
def away(delayq_app, browse):
    app = delayq_app(f"redis://127.0.0.1:{free_port()}/0", delayq_timeout=0.2)
    return browse(app)


@pytest.mark.parametrize("path", ["/", "/tasks", "/task?id=a"])
def test_a_page_says_that_redis_is_away_and_loads_anew(away, path):
    page = away.get(path)
    assert (page.status, page.title) == (503, "Redis is away · tests")
    assert "Connection refused" in page.said
    assert '<meta http-equiv="refresh" content="5">' in page.html
    assert page.headers["Retry-After"] == "5"


def test_a_change_while_redis_is_away_is_not_repeated_by_the_page(away):
    page = away.post("/task?id=a", action="cancel")
    assert page.status == 503
    assert "http-equiv" not in page.html


@pytest.mark.parametrize(("path", "status"), [("/", 500), ("/nowhere", 404)])
def test_each_page_says_that_a_setting_is_wrong(delayq_app, url, browse, path, status):
    page = browse(delayq_app(url, delayq_batch_size=0)).get(path)
    wrong = "delayq_batch_size is 0; expected "
    assert page.status == status
    assert page.said.startswith(wrong) if path == "/" else wrong in page.html


def test_a_form_that_is_too_large_is_refused(browser, task):
    assert browser.post("/task?id=a", action="edit", args="x" * 2_000_000).status == 413


def test_a_page_that_does_not_exist_says_so_and_has_a_way_on(browser):
    page = browser.get("/nowhere")
    assert page.status == 404
    assert page.title.endswith("Not Found · tests")
    assert '<a class="button" href="/">To the overview</a>' in page.html


# Labels, headings, captions, landmarks.

VOID = {"meta", "link", "input", "br"}


class Reader(HTMLParser):
    """Collects the elements of a page, each with its attributes, and checks that they nest."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open = [], []
        self.feed(text)
        assert self.open == []
        self.ids = [each["id"] for _, each in self.elements if "id" in each]

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, *tags):
        return [attributes for tag, attributes in self.elements if tag in tags]


PATHS = "/ /tasks /tasks?queue=mail /tasks?state=DEAD /tasks?after=x /task?id=a /task?id=none /task"
PATHS += " /nowhere /paused /history /keys /queues /key?key=k /rules /rules?only=r&asks=1"


@pytest.fixture
def pages(app, browser, scheduled):
    """A response of each kind, as it is read."""
    scheduled("a", key="k", tags=["blue"], at=app.delayq.counts().now_ms / 1000 + 1800)
    scheduled("b", at=LONG_AGO, queue="mail")
    app.delayq.pause(queue="mail")
    app.delayq.every("r", app.tasks["shop.remind"].s(1), "0 9 * * *", tags=["blue"])
    counting = browser.get(browser.post("/all", action="cancel").location)
    pages = [
        *map(browser.get, PATHS.split()),
        counting,
        browser.get(browser.post(counting.action_with("<button")).location),
        browser.change("/selected", action="run_now", one="1 a"),
        browser.change("/selected", action="run_now", one="1 a", sure="1"),
        browser.change("/paused", action="pause", kind="everything"),
    ]
    return [(page, Reader(page.html)) for page in pages]


def test_each_page_is_sound(pages):
    for page, read in pages:
        assert page.html.startswith("<!doctype html>")
        assert read.all("html") == [{"lang": "en"}]
        assert page.title.endswith(" · tests")
        assert len(read.all("h1")) == len(read.all("main")) == 1
        assert read.all("header").count({"class": "mast"}) == 1
        assert len(read.ids) == len(set(read.ids))


def test_each_field_has_a_label(pages):
    for _, read in pages:
        labelled = {each["for"] for each in read.all("label")}
        for field in read.all("input", "select", "textarea"):
            has_label = field.get("id") in labelled or field.get("aria-label")
            assert has_label or field.get("type") == "hidden", field
        assert labelled <= {*read.ids}
        for _, each in read.elements:
            for name in ("aria-describedby", "aria-labelledby"):
                assert {*each.get(name, "").split()} <= {*read.ids}


def test_each_table_has_a_caption_and_its_headings_a_scope(pages):
    for _, read in pages:
        assert len(read.all("table")) == len(read.all("caption"))
        assert all(each.get("scope") in ("col", "row", "rowgroup") for each in read.all("th"))


def test_a_form_can_be_sent_by_its_button_alone(pages):
    for _, read in pages:
        assert len(read.all("button")) >= len(read.all("form"))
        assert all(each.get("method") in ("get", "post") for each in read.all("form"))


@pytest.mark.parametrize(
    ("path", "name"), [("/", "Overview"), ("/tasks", "Tasks"), ("/tasks?state=DEAD", "Dead")]
)
def test_the_navigation_marks_the_page(browser, path, name):
    page = browser.get(path).html
    assert page.count('aria-current="page"') == 1
    assert f'aria-current="page">{name}</a>' in page
