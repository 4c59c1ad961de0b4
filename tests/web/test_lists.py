"""The list of tasks: filters, pages, looks in steps, finding by a part, and the changes offered."""

import html
import re
from itertools import chain
from urllib.parse import parse_qs, quote, quote_plus, urlsplit

import pytest

from tests.app.support import FAR, LONG_AGO
from tests.web.support import LOOK_ON, NEXT, counted, is_wrong, walk


def test_tasks_are_listed_in_due_order(browser, scheduled):
    scheduled("second", at=FAR + 1)
    scheduled("first", at=FAR, key="k", tags=["blue"])
    page = browser.get("/tasks")
    assert page.ids == ["first", "second"]
    rows = page.text.partition("State Id ")[2]
    assert re.match(r"Friday 01 January 2100 00:00 in [\d,]+ d", rows)
    assert "shop. remind 1 k blue celery first" in rows


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ({}, "abc"),
        ({"order": "latest"}, "cba"),
        ({"queue": "mail"}, "b"),
        ({"tag": "blue"}, "c"),
        ({"task": "shop.remind"}, "abc"),
        ({"task": "shop.other"}, ""),
        ({"id": "the-task-b"}, "b"),
        ({"id": "the-task"}, "abc"),  # its beginning
        ({"id": "the-"}, ""),  # too little of it
        ({"key": "k"}, "a"),
        ({"state": "PAUSED"}, ""),
        ({"state": "SCHEDULED"}, "abc"),
        ({"state": "UNKNOWN"}, "c"),
        ({"after": "2100-01-01T00:01"}, "bc"),
        ({"before": "2100-01-01T00:01Z"}, "a"),
        ({"after": "2100-01-01T01:01", "zone": "Europe/Berlin"}, "bc"),
        ({"after": "+1h"}, "abc"),
        ({"after": "2100-01-01T00:01Z", "zone": "Middle/Earth"}, "bc"),
        ({"queue": "mail", "tag": "blue"}, ""),
    ],
)
def test_a_filter_shows_the_tasks_that_match(browser, scheduled, query, shown):
    scheduled("the-task-a", at=FAR, key="k")
    scheduled("the-task-b", at=FAR + 60, queue="mail")
    scheduled("the-task-c", at=FAR + 120, tags=["blue", "delayq:unknown"])
    page = browser.get("/tasks", **query)
    assert page.ids == [f"the-task-{one}" for one in shown]
    assert ("No such task is scheduled." in page.text) is not bool(shown)


def test_a_filter_that_is_wrong_keeps_its_text(browser):
    page = browser.get("/tasks", queue="mail", after="tomorow")
    assert is_wrong(page, "q")
    assert page.said.startswith("'tomorow' is not a time; ")
    for chip in ("after:tomorow", "queue:mail"):
        assert f"<span>{chip}</span>" in page.html
    assert "No such task" not in page.text


@pytest.mark.parametrize("query", [{}, {"state": "SCHEDULED"}, {"order": "latest"}])
def test_pages_of_a_list_have_each_task_once(browser, scheduled, query):
    ids = [f"task-{number:03}" for number in range(120)]
    for number, task_id in enumerate(ids):
        scheduled(task_id, at=FAR + number)
    found = [page.ids for page in walk(browser, browser.get("/tasks", **query), NEXT)]
    assert [len(some) for some in found] == [50, 50, 20]
    assert [*chain(*found)] == (ids[::-1] if query.get("order") else ids)


def test_the_page_says_how_many_tasks_have_a_tag(browser, scheduled):
    for number in range(3):
        scheduled(f"task-{number}", tags=["even"])
    told = "3 tasks on this page; 3 tasks in the store have this tag"
    assert told in browser.get("/tasks?tag=even").text
    assert "have this tag" not in browser.get("/tasks?tag=even&queue=celery").text


# Lists for which Redis has to look: in steps, and each task once.


@pytest.fixture
def all_pages(browser):
    """Follow a list to its end: the ids of each page."""

    def all_pages(**query):
        pages = walk(browser, browser.get("/tasks", **query), NEXT, LOOK_ON)
        return [page.ids for page in pages]

    return all_pages


@pytest.fixture
def short_looks(limits):
    """Look at three tasks in each request."""
    limits(web_list_s=0, web_list_look=3)


@pytest.fixture
def forty(scheduled):
    """Forty tasks, every fifth for the queue rare; some overdue, some due together, some far."""
    dues = [LONG_AGO, LONG_AGO + 1, FAR, FAR, FAR, FAR + 0.001, FAR + 5_000_000, FAR + 5_000_001]
    for number in range(40):
        queue = "rare" if number % 5 == 0 else "celery"
        scheduled(f"task-{number}", at=dues[number % 8], queue=queue)


QUERIES = [
    {"queue": "rare"},
    {"queue": ["rare", "celery"]},
    {"queue": "rare", "after": "2100-01-01"},
    {"queue": "rare", "before": "2100-01-01T00:00:00.001"},
    {"queue": "nothing"},
]


@pytest.mark.parametrize("order", ["", "latest"])
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.usefixtures("forty", "short_looks")
def test_each_task_is_listed_once_and_in_order(app, all_pages, query, order):
    names = {"after": "after_due", "before": "before_due"}
    picking = {names.get(name, name): value for name, value in query.items()}
    expected = [task.id for task in app.delayq.tasks(**picking, newest_first=bool(order))]
    pages = all_pages(**query, order=order)
    assert [*chain(*pages)] == expected
    assert len(pages) > 1


@pytest.mark.usefixtures("forty")
def test_pages_are_full_where_there_is_time(app, all_pages, limits):
    limits(web_list_shown=7, web_list_look=3)
    expected = [task.id for task in app.delayq.tasks(queue="celery")]
    pages = all_pages(queue="celery")
    assert [*chain(*pages)] == expected
    assert [len(page) for page in pages] == [7, 7, 7, 7, 4]


@pytest.mark.usefixtures("forty", "short_looks")
def test_tasks_that_are_not_paused_are_looked_for_in_steps(app, all_pages):
    app.delayq.pause(queue="rare")
    app.delayq.hand_over()
    expected = [task.id for task in app.delayq.tasks() if task.state == "SCHEDULED"]
    pages = all_pages(state="SCHEDULED")
    assert [*chain(*pages)] == expected
    assert len(pages) > len(expected)


@pytest.mark.usefixtures("forty", "short_looks")
def test_a_step_says_how_far_it_looked_and_can_be_stopped(browser):
    page = browser.get("/tasks", queue="nothing")
    assert page.said.startswith("For this filter, Redis looks at all waiting tasks, and it has ")
    assert "data-follow" in page.html
    assert '<a href="/tasks">stop</a>' in page.html
    # A page with tasks stays until the user goes on.
    assert "data-follow" not in browser.get("/tasks", queue=["rare", "celery"]).html


# The search, its chips, and the rows.


@pytest.mark.parametrize(
    ("typed", "filters"),
    [
        ("queue:mail", {"queue": "mail"}),
        ("Tag: customer:7 ", {"tag": "customer:7"}),
        ('tag:"a b" tag:c task:t', {"task": "t", "tag": ["a b", "c"]}),
        ("state:dead", {"state": "DEAD"}),
        ("state:in-flight", {"state": "IN_FLIGHT"}),
        ("state:unknown", {"state": "UNKNOWN"}),
        ("after:tomorrow 9:00", {"after": "tomorrow 9:00"}),
        ("before:+2h queue:mail", {"before": "+2h", "queue": "mail"}),
        ("due:tomorrow", {"due": "tomorrow"}),
        ("due:29 Nov 2099 shoes", {"due": "29 Nov 2099", "text": "shoes"}),
        ('due:"this week" "due:x"', {"due": "this week", "text": "due:x"}),
        ("due:mon..fri red", {"due": "mon..fri", "text": "red"}),
        ("key:cart:1", {"key": "cart:1"}),
        ("word:queue:mail", {"text": "queue:mail"}),
        ('red "large shoes"', {"text": ["red", "large shoes"]}),
        ("48508ead-d1f2-4c87-a2d8-205aa3af2832", {"id": "48508ead-d1f2-4c87-a2d8-205aa3af2832"}),
        ("48508ead", {"id": "48508ead"}),
        ('"48508ead"', {"text": "48508ead"}),
        ("48508ea", {"text": "48508ea"}),
        ("id:7", {"id": "7"}),
        ("ann@example.com", {"text": "ann@example.com"}),
        ("http://a", {"text": "http://a"}),
    ],
)
def test_the_search_knows_what_a_text_means(browser, typed, filters):
    answered = browser.get("/tasks", q=typed)
    assert answered.status == 303
    found = parse_qs(urlsplit(answered.location).query)
    assert found == {
        name: [some] if isinstance(some, str) else some for name, some in filters.items()
    }


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("queue:", "queue: has no text; type one behind it, as in queue:mail"),
        ('tag:"a b', "the quotes before a are not closed"),
        ("quue:mail", "the search has no quue:; did you mean queue:mail?"),
        ("state:dad", "'dad' is no state; did you mean dead?"),
        ("state:x", "'x' is no state; expected scheduled, paused, in_flight, dead or unknown"),
        ("due:tomorow", "'tomorow' is not a time; did you mean tomorrow?"),
        ("due:3/4/2099", "'3/4/2099' can mean two times; "),
        ("due:now..-1h", "'now..-1h' ends before it begins; "),
        ("id:7 queue:mail", "id:7 names one task, so nothing else can stand beside it"),
    ],
)
def test_a_search_that_is_wrong_stays_beside_the_reason(browser, many, typed, why):
    page = browser.get("/tasks", q=typed, tag="even")
    if page.status == 303:  # of the list to which it leads
        page = browser.get(page.location)
        assert typed in page.text
    else:
        assert f'value="{html.escape(typed).replace("&quot;", "&#34;")}"' in page.html
    assert (page.status, page.said[: len(why)]) == (400, why)
    assert "tag:even" in page.text


@pytest.mark.parametrize(
    "name", ["order-7", "8b0ce8b4-1f0f-4cd5-9a1c-9d1f7b6f7a53", "a b", "12345678"]
)
def test_an_id_or_a_key_leads_to_its_page(app, browser, name):
    typed, key, there = f'"{name}"', f"{name}-key", f"/task?id={quote_plus(name)}"
    assert "/task?" not in browser.get("/tasks", q=typed).location
    app.send_task("t", task_id=name, delayq_at=FAR)
    for q in (typed, f"id:{typed}"):
        assert (
            browser.get("/tasks", q=q, tag="x").location
            == f"/task?id={quote_plus(name)}&back=tag%3Dx"
        )
    app.delayq.cancel(name)
    assert browser.get("/tasks", q=typed).location == there
    app.send_task("t", task_id="other", delayq_at=FAR, delayq_key=key)
    for q in (f'"{key}"', f'key:"{key}"'):
        assert browser.get("/tasks", q=q).location == "/task?id=other"


def test_a_name_that_is_said_to_be_an_id_or_a_key_leads_to_no_other(app, browser):
    app.send_task("t", task_id="a", delayq_at=FAR, delayq_key="b")
    app.send_task("t", task_id="b", delayq_at=FAR, delayq_key="c")
    assert browser.get("/tasks", q="id:b").location == "/task?id=b"
    assert browser.get("/tasks", q="key:b").location == "/task?id=a"
    assert browser.get("/tasks", q="id:c").location == "/tasks?id=c"


def test_an_old_link_to_a_list_of_one_id_leads_to_what_is_known_of_it(app, browser):
    app.send_task("t", task_id="a", delayq_at=FAR, delayq_key="k")
    assert browser.get("/tasks", id="a").ids == ["a"]
    app.delayq.cancel("a")
    assert browser.get("/tasks", id="a").location == "/task?id=a&back=id%3Da"


def test_tasks_have_each_text_of_a_search_in_their_arguments(browser, scheduled):
    scheduled("a", "red shoes")
    scheduled("b", "red hat")
    scheduled("c", "shoes, red")
    assert sorted(browser.get(browser.get("/tasks", q="red shoes").location).ids) == ["a", "c"]
    assert browser.get(browser.get("/tasks", q='"red shoes"').location).ids == ["a"]


@pytest.mark.parametrize(
    ("due", "zone", "shown"),
    [
        ("1 Jan 2100", "", "ab"),
        ("1 Jan 2100", "Asia/Kolkata", "a"),  # there, b is due on January 2
        ("2 Jan 2100", "Asia/Kolkata", "bc"),
        ("2 Jan 2100..", "", "cd"),
        ("..now", "", ""),
    ],
)
def test_a_day_is_a_day_of_the_zone_in_a_filter(browser, scheduled, due, zone, shown):
    for number, task_id in enumerate("abcd"):
        scheduled(task_id, at=FAR + number * 20 * 3600)
    page = browser.get("/tasks", due=due, zone=zone)
    assert "".join(page.ids) == shown
    assert f"due:{due}" in page.text


def test_the_list_says_which_instants_a_day_means(browser):
    page = browser.get("/tasks", due="1 Jan 2100", zone="Asia/Kolkata")
    meant = "Due from Fri 1 Jan 2100, 00:00 until Sat 2 Jan 2100, 00:00, Asia/Kolkata."
    assert meant in page.text


QUICK = {
    "Today": "due=today", "Tomorrow": "due=tomorrow", "This week": "due=this+week",
    "Overdue": "due=..now&state=SCHEDULED", "In flight": "state=IN_FLIGHT", "Dead": "state=DEAD",
}  # fmt: skip


def test_searches_that_one_press_makes(browser, scheduled):
    scheduled("late", at=LONG_AGO)
    scheduled("far")
    found = browser.get("/tasks").html.partition('<p class="quick">')[2].partition("</p>")[0]
    links = re.findall('<a href="/tasks[?]([^"]*)">([^<]*)</a>', found)
    assert {name: html.unescape(query) for query, name in links} == QUICK
    for name, query in QUICK.items():
        page = browser.get(f"/tasks?{query}")
        assert f'aria-current="true">{name}</a>' in page.html
        assert page.ids == (["late"] if name == "Overdue" else [])


def test_a_search_that_finds_nothing_suggests_only_what_finds_something(browser, many, scheduled):
    for number in range(3):
        scheduled(f"mail-{number}", queue="mail", tags=["vip"])
    page = browser.get("/tasks", queue="mial", tag="vip", due="1 Jan 2100", state="DEAD")
    assert "without" not in page.text
    page = browser.get("/tasks", queue="mial", tag="vip", due="1 Jan 2100")
    nothing = page.html.partition('<section class="nothing"')[2]
    tries = re.findall('<li>(?:Did you mean )?<a href="([^"]*)">([^<]*)</a>(.*?)</li>', nothing)
    said = [(name, re.sub("<[^>]*>", "", rest).strip()) for _, name, rest in tries]
    assert said == [
        ("queue:mail", "instead of queue:mial? 3 tasks"),
        ("without queue:mial", "3 tasks"),
        ("History", "has what was delivered or cancelled"),
    ]
    for url, *_ in tries[:2]:
        assert len(browser.get(html.unescape(url)).ids) == 3


def test_a_change_of_all_that_are_due_on_a_day_is_of_that_day_also_after_it(browser, scheduled):
    scheduled("a")
    posted = browser.post("/all?due=1+Jan+2100&zone=Asia/Kolkata", action="cancel")
    query = parse_qs(urlsplit(posted.location).query)
    assert (query["after"], query["before"]) == (
        ["2099-12-31T18:30:00+00:00"],
        ["2100-01-01T18:30:00+00:00"],
    )
    assert "due" not in query
    assert "Cancel: 1 task" in browser.get(posted.location).text


@pytest.mark.parametrize(
    ("where", "typed", "to"),
    [
        ("tag=even", "queue:mail", {"tag": ["even"], "queue": ["mail"]}),
        ("queue=mail&order=latest", "queue:news", {"queue": ["mail", "news"], "order": ["latest"]}),
        ("after=%2B1h", "after:+2h", {"after": ["+2h"]}),
        ("due=today", "due:tomorrow", {"due": ["tomorrow"]}),
        ("tag=even&zone=Europe/Berlin", "key:k", {"key": ["k"], "zone": ["Europe/Berlin"]}),
        ("id=a", "tag:even", {"tag": ["even"]}),
        ("tag=even&cursor=x", "word", {"tag": ["even"], "text": ["word"]}),
        ("text=red", "shoes", {"text": ["red", "shoes"]}),
    ],
)
def test_what_is_typed_becomes_one_filter_more(browser, where, typed, to):
    answered = browser.get(f"/tasks?{where}&q={quote(typed)}")
    assert answered.status == 303
    assert parse_qs(urlsplit(answered.location).query) == to


def test_each_filter_is_a_chip_with_a_link_to_the_list_without_it(browser, many):
    page = browser.get("/tasks", tag=["even", "odd"], queue="mail", order="latest")
    chips = re.findall(
        '<span class="chip"><span>(.*?)</span><a href="(.*?)" aria-label="', page.html
    )
    assert [name for name, _ in chips] == ["queue:mail", "tag:even", "tag:odd"]
    kept = [parse_qs(urlsplit(html.unescape(url)).query) for _, url in chips]
    latest = {"order": ["latest"]}
    assert kept == [
        {"tag": ["even", "odd"], **latest},
        {"queue": ["mail"], "tag": ["odd"], **latest},
        {"queue": ["mail"], "tag": ["even"], **latest},
    ]
    none = browser.get("/tasks", tag="none", queue="mail")
    without = none.url(r'<a href="([^"]*)">without tag:none')
    assert parse_qs(urlsplit(without).query) == {"queue": ["mail"]}


@pytest.mark.parametrize(
    ("zone", "days"),
    [
        ("", {"Friday 01 January 2100": "ab", "Saturday 02 January 2100": "c"}),
        ("Asia/Kolkata", {"Friday 01 January 2100": "a", "Saturday 02 January 2100": "bc"}),
    ],
)
def test_the_rows_stand_below_the_days_of_the_zone(browser, scheduled, zone, days):
    scheduled("a", at=FAR + 18 * 3600 + 29 * 60)
    scheduled("b", at=FAR + 18 * 3600 + 30 * 60)
    scheduled("c", at=FAR + 86_400 + 18 * 3600)
    page = browser.get("/tasks", zone=zone)
    parts = page.html.split('<tr class="day">')[1:]
    shown = {
        re.search(">([^<]*)</time>", part)[1]: "".join(re.findall('title="([abc])"', part))
        for part in parts
    }
    assert shown == days


def test_a_long_argument_is_cut_and_says_how_long_it_is(app, browser, scheduled):
    app.send_task("t", ("x" * 5000,), {"text": "y" * 40}, task_id="a", delayq_at=FAR)
    scheduled("b", "z" * 30, at=FAR + 1)
    page = browser.get("/tasks")
    assert f'<bdi>{"x" * 29}…</bdi> <span class="size">5,000 characters</span>' in page.html
    assert f'<span class="name">text</span><bdi>{"y" * 29}…</bdi></span>' in page.html
    assert f"<bdi>{'z' * 30}</bdi></span>" in page.html


# Finding by a part: by suggestions, a beginning, a text in the arguments.


@pytest.mark.parametrize("path", ["/tasks", "/paused"])
def test_tasks_and_queues_that_exist_are_suggested(browser, path):
    page = browser.get(path)
    for name, kind in (("shop.remind", "task"), ("celery", "queue")):
        in_search = path == "/tasks"
        names = re.search(rf'name="{"q" if in_search else "name"}"[^>]* list="(\w+)"', page.html)[1]
        options = page.html.partition(f'<datalist id="{names}">')[2].partition("</datalist>")[0]
        assert f'<option value="{f"{kind}:" if in_search else ""}{name}">' in options
        assert "celery.backend_cleanup" not in options


def test_the_tags_of_the_tasks_on_the_page_are_suggested(browser, scheduled):
    scheduled("a", tags=["x", "<y>"])
    scheduled("b", tags=["x"])
    suggested = browser.get("/tasks").html.partition('<datalist id="words">')[2]
    both = '<option value="tag:&lt;y&gt;"></option><option value="tag:x"></option>'
    assert suggested.partition("</datalist>")[0].endswith(both)


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        ({"task": "remind"}, "shop.remind"),
        ({"queue": "ma"}, "mail"),
        ({"tag": "customer"}, "customer:7"),
    ],
)
def test_a_filter_that_matches_nothing_suggests_another_value(browser, scheduled, query, meant):
    scheduled("a", queue="mail", tags=["customer:7"])
    page = browser.get("/tasks", **query)
    # Tasks of other tests' modules may be alike, too.
    [(kind, text)] = query.items()
    said = f"Did you mean {kind}:{meant} instead of {kind}:{text}? 1 task"
    assert f"No such task is scheduled. Try: {said}" in page.text
    assert browser.get(page.url(r'Did you mean <a href="([^"]*)"')).ids == ["a"]


def test_ids_are_looked_for_in_steps(browser, scheduled, limits):
    limits(find_step=10, web_list_s=0)
    for number in range(700):
        scheduled(f"task-{number:03}")

    pages = [*walk(browser, browser.get("/tasks?id=task-64"), LOOK_ON)]

    assert len(pages) > 3
    says = [page for page in pages if "looks at the ids" in page.text]
    assert all("has looked at some" in page.text for page in says)
    assert sorted(chain(*(page.ids for page in pages))) == [f"task-64{one}" for one in range(10)]


@pytest.mark.parametrize(
    "query", [{}, {"tag": "even"}, {"queue": "celery"}, {"state": "SCHEDULED"}]
)
def test_a_text_in_the_arguments_finds_their_tasks(browser, scheduled, query):
    scheduled("a", "Ann@Example.com", tags=["even"])
    scheduled("b", "bob@example.com", tags=["even"])
    scheduled("c", "ann@example.com", queue="mail", at=FAR + 1)
    page = browser.get("/tasks", text="ann@", **query)
    assert page.ids == (["a"] if query.keys() & {"tag", "queue"} else ["a", "c"])
    # A change of all that match knows no such filter.
    assert "All that match" not in page.text
    assert "all that match" not in page.text
    assert "Change the ticked" in page.text


def test_the_arguments_of_dead_tasks_are_searched_too(browser, die):
    die("ann", "bob")
    assert browser.get("/tasks?state=DEAD&text=bob").ids == ["bob"]


def test_arguments_are_searched_in_steps_that_say_so(browser, scheduled, limits):
    limits(web_list_s=0)
    for number in range(5):
        scheduled(f"task-{number}", f"user-{number}", at=FAR + number)
    pages = [*walk(browser, browser.get("/tasks?text=user-3"), LOOK_ON)]
    [found] = [place for place, page in enumerate(pages) if page.ids == ["task-3"]]
    assert found == 3
    for page in pages[:found]:
        assert "This looks into the arguments of each task" in page.text


def test_hidden_arguments_are_not_searched(app, browse, scheduled):
    scheduled("a", "secret")
    page = browse(app, hide_arguments=True).get("/tasks?text=secret")
    assert (page.status, page.ids) == (400, [])
    assert page.said.startswith("text is 'secret'; expected no search in arguments")


# The changes that a list offers.

# In the page's order: those without a value first, and of these last what takes tasks away.
BUTTONS = ["run_now", "retry", "cancel", "remove"]
BUTTONS += ["reschedule", "add_tag", "remove_tag", "requeue", "prioritise"]
DEAD = {"retry", "remove", "reschedule"}
WAITING = {*BUTTONS} - {"retry", "remove"}


@pytest.mark.parametrize(
    ("filters", "title", "actions"),
    [
        ({}, "Tasks", WAITING),
        ({"state": "DEAD"}, "Dead tasks", DEAD),
        ({"id": "dead"}, "Tasks", DEAD),
        ({"state": ["DEAD", "SCHEDULED"]}, "Tasks", WAITING | DEAD),
    ],
)
def test_a_list_offers_changes_that_suit_in_order(browser, many, die, filters, title, actions):  # noqa: PLR0917
    die("dead")
    page = browser.get("/tasks", **filters)
    assert page.title.endswith(f" · {title} · tests")
    assert f"<h1>{title}</h1>" in page.html
    [form] = re.findall(r'<select id="m-action".*?</select>', page.html, re.DOTALL)
    offered = re.findall(r'<option value="(.*?)">', form)
    assert offered == ["", *(one for one in BUTTONS if one in actions)]


@pytest.mark.parametrize(
    ("filters", "scans"),
    [({}, True), ({"queue": "mail"}, True), ({"tag": "even"}, False), ({"state": "DEAD"}, False)],
)
def test_all_that_match_without_a_tag_are_said_to_be_slow(browser, many, die, filters, scans):
    die("dead")
    page = counted(browser, filters, action="reschedule", value="by:+1h")
    assert ("Each step scans all waiting tasks again" in page.text) is scans


def test_one_task_that_matches_is_counted_and_shown_whole(browser, scheduled):
    scheduled("a", at=FAR)
    page = counted(browser, {"queue": "celery"}, action="cancel")
    assert "They are" in page.text
    assert "1 task matches." in page.text
