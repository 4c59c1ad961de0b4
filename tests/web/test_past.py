"""What is over: the page of a task that left, the history with its filters, and the held keys."""

import re
import threading

import pytest
from celery import states

from celery_delayq import Outcome
from tests.app.support import FAR, LONG_AGO
from tests.support.shards import keys_of
from tests.support.waiting import PATIENCE
from tests.web.support import NEXT, walk


def state_of(page):
    """The sentence of the state of a task."""
    found = re.search(r'<p class="what">(.*?)</p>', page.html, re.DOTALL)
    return " ".join(re.sub("<[^>]*>", " ", found[1]).split())


@pytest.fixture
def app(app, delayq_app, url):
    app.conf.delayq_undo = (3600, 100)
    return app


@pytest.fixture
def kept(delayq_app, url):
    """An app with a result backend, whose tasks have results."""
    app = delayq_app(url, delayq_history=100, delayq_undo=(3600, 100), result_backend=url)

    @app.task(name="shop.remind")
    def remind(order, text=""):
        pass

    return app


@pytest.fixture
def delivered(kept):
    kept.send_task("shop.remind", (1,), task_id="a", delayq_at=LONG_AGO)
    kept.delayq.hand_over()
    return kept


# A task that left.


def test_a_cancelled_task_has_its_name_arguments_and_facts_and_who_cancelled_it_when(
    app, browser, scheduled
):
    scheduled("a", "cart-22205", key="k", tags=["blue"], queue="mail")
    with app.delayq.acting("maria"):
        app.delayq.cancel("a")

    page = browser.get("/task", id="a")

    assert page.status == 200
    assert "· shop.remind, cancelled ·" in page.title
    assert re.fullmatch(r"Cancelled by maria \d+ s ago", state_of(page))
    for text in ("shop. remind a", "cart-22205", "Queue mail", "Tags blue", "Key k", "2100"):
        assert text in page.text
    assert "An undo brings it back with its id, key and tags: until" in page.text
    assert "or until 100 tasks more are cancelled" in page.text
    assert "Did it run?" not in page.text


def test_a_delivered_task_says_when_by_whom_it_is_named_and_what_the_backend_has(delivered, browse):
    delivered.backend.store_result("a", {"sent": 3}, states.SUCCESS)
    page = browse(delivered).get("/task", id="a")
    assert page.status == 200
    assert re.fullmatch(r"Delivered \d+ s ago, SUCCESS", state_of(page))
    assert 'class="state green"' in page.html
    assert "{'sent': 3}" in page.text
    assert "· shop.remind, delivered ·" in page.title
    assert "Undo" not in page.text


def test_of_a_failed_one_the_error_stands_there_with_the_traceback_and_the_worker(
    delivered, browse
):
    delivered.conf.result_extended = True

    class Request:
        task, args, kwargs, hostname, retries = "shop.remind", (), {}, "worker-1@host", 0
        id, delivery_info, errbacks, group, chord, reply_to = "a", {}, None, None, None, None
        parent_id = root_id = correlation_id = None
        children, stamped_headers, stamps = [], None, None

    delivered.backend.store_result(
        "a", ValueError("no such cart"), states.FAILURE, traceback="in line 7", request=Request
    )
    page = browse(delivered).get("/task", id="a")
    assert state_of(page).endswith("FAILURE at worker-1@host")
    assert 'class="state red"' in page.html
    assert "Error ValueError: no such cart Traceback in line 7" in page.text

    hidden = browse(delivered, hide_arguments=True).get("/task", id="a").text
    assert "Error ValueError" in hidden
    assert "no such cart" not in hidden
    assert "line 7" not in hidden


def test_a_result_that_is_not_there_is_said_to_be_unknown_and_why(delivered, browse):
    assert "The result backend has nothing of it" in browse(delivered).get("/task", id="a").text


def test_without_a_result_backend_the_page_says_so(app, browser, scheduled):
    scheduled("a", at=LONG_AGO)
    app.delayq.hand_over()
    page = browser.get("/task", id="a")
    assert "This app has no result backend: nothing says whether it ran" in page.text


def test_a_result_backend_that_hangs_does_not_hold_the_page(delivered, browse, limits, monkeypatch):
    limits(web_result_s=0.05)
    over = threading.Event()
    monkeypatch.setattr(
        type(delivered.backend), "get_task_meta", lambda *_, **__: over.wait(PATIENCE)
    )
    page = browse(delivered).get("/task", id="a")
    over.set()
    assert re.fullmatch(r"Delivered \d+ s ago", state_of(page))
    assert "The result backend did not answer within" in page.text


def test_a_result_backend_that_fails_does_not_fail_the_page(delivered, browse, monkeypatch):
    def fail(*_, **__):
        raise OSError("redis://:secret@host")

    monkeypatch.setattr(type(delivered.backend), "get_task_meta", fail)
    page = browse(delivered).get("/task", id="a")
    assert page.status == 200
    assert "The result backend cannot be asked: OSError." in page.text
    assert "secret" not in page.html


@pytest.mark.parametrize("access", ["write", "read"])
def test_the_workers_are_asked_by_a_link_and_only_then(delivered, browse, monkeypatch, access):
    asked = []

    def request(inspect, command, **arguments):
        asked.append((command, arguments))
        state = ["active", {"id": "a"}]
        return {"celery@w1": {"a": state}, "celery@w2": {}, "celery@w3": {"error": "busy"}}

    monkeypatch.setattr("celery.app.control.Inspect._request", request)
    browser = browse(delivered, allow=lambda _: access)
    page = browser.get("/task", id="a")
    assert asked == []
    page = browser.get(page.url('href="([^"]*)">Ask the workers'))
    assert asked == [("query_task", {"ids": ["a"]})]
    assert "Workers Worker celery@w1 runs it." in page.text
    assert "w2" not in page.text


@pytest.mark.parametrize(
    ("answer", "said"),
    [(None, "No worker answered within 1 s."), ({"w": {}}, "1 worker answered, and none has it:")],
)
def test_workers_that_do_not_have_it_are_told_from_those_that_are_silent(
    delivered, browse, monkeypatch, answer, said
):
    monkeypatch.setattr("celery.app.control.Inspect._request", lambda *_, **__: answer)
    assert said in browse(delivered).get("/task", id="a", ask="1").text


def test_what_was_cancelled_with_it_is_a_link_with_the_number_and_an_undo_of_all(
    app, browser, browse, scheduled
):
    for task_id in ("a", "b", "c"):
        scheduled(task_id, tags=["x"])
    with app.delayq.acting("maria"):
        app.delayq.select(tag="x").cancel()
    page = browser.get("/task", id="b")
    assert "It was one of 3 tasks" in page.text
    assert "in a change of many maria" in page.text
    assert "c" in browser.get(page.url('href="([^"]*)">3 tasks')).text
    assert "Undo" not in browse(app, allow=lambda _: "read").get("/task", id="b").text

    page = browser.change(page.action_with("Undo: 3 tasks"))

    assert page.said == "3 tasks are back."
    assert sorted(task.id for task in app.delayq.tasks()) == ["a", "b", "c"]


def test_a_task_of_which_nothing_is_known_is_not_found_and_what_would_keep_it_is_said(
    app, browser, url
):
    app.conf.update(delayq_history=0, delayq_undo=0)
    page = browser.get("/task", id="none")
    assert page.status == 404
    assert f"task none is not scheduled in {url}" in page.text
    for name in ("delayq_history It is 0.", "delayq_undo It is 0.", "delayq_remember How a task"):
        assert name in page.text
    assert "Undo" not in page.text


def test_a_task_that_was_cancelled_without_an_undo_has_its_name_of_the_history(
    app, browser, scheduled
):
    app.conf.delayq_undo = 0
    scheduled("a", "cart-22205", key="k")
    app.delayq.cancel("a")
    page = browser.get("/task", id="a")
    assert "· shop.remind, cancelled ·" in page.title
    assert "Key k" in page.text
    assert "cart-22205" not in page.text
    assert "delayq_undo It is 0." in page.text
    assert "delayq_history" not in page.text


def test_hidden_arguments_of_a_task_that_left_are_on_no_page(app, browse, scheduled):
    scheduled("a", "card-4711")
    app.delayq.cancel("a")
    shown, hidden = (browse(app, hide_arguments=hides).get("/task", id="a") for hides in (0, 1))
    assert "card-4711" in shown.html
    assert "card-4711" not in hidden.html
    assert "args hidden kwargs hidden" in hidden.text


def test_the_events_of_an_earlier_task_with_this_id_do_not_say_how_the_last_one_left(
    app, browser, scheduled, redis
):
    scheduled("a")
    with app.delayq.acting("maria"):
        app.delayq.cancel("a")
    scheduled("a", at=LONG_AGO)
    app.delayq.hand_over()
    redis.ltrim(keys_of("a")["history"], 2, -1)  # without those of the last one
    page = browser.get("/task", id="a")
    assert state_of(page).startswith("Delivered ")
    assert "maria" not in state_of(page)


# Where the search leads.


def test_the_search_leads_to_the_page_of_a_task_that_left_and_of_the_key_it_holds(
    app, browser, scheduled
):
    scheduled("gone", key="of gone")
    app.delayq.cancel("gone")
    held = {"key": "held", "unique_until": "finished", "conflict": "replace"}
    scheduled("first", at=LONG_AGO, **held)
    app.delayq.hand_over()

    for text, path in {
        '"of gone"': "/task?id=gone",
        "first": "/task?id=first",
        "held": "/key?key=held",
        "key:held": "/key?key=held",
        "x" * 600: "/tasks?text=" + "x" * 600,
    }.items():
        answered = browser.get("/tasks", q=text)
        assert (answered.status, answered.location) == (303, path), text


def test_an_id_that_only_an_undo_still_knows_is_found(app, browser, scheduled, redis):
    scheduled("a", 42)
    app.delayq.cancel("a")
    app.conf.delayq_history = 0
    redis.delete(keys_of("a")["tombstones"], keys_of("a")["history"])
    assert browser.get("/tasks", q="a").location == "/task?id=a"
    page = browser.get("/task?id=a")
    assert page.status == 200
    assert "· shop.remind, " in page.title
    assert "Undo the cancel" in page.text


# The history.


@pytest.fixture
def events(app, scheduled):
    """Of two tasks, by two people, and a change of many."""
    scheduled("order-1", key="cart:1")
    app.send_task("shop.sync", task_id="order-2", delayq_at=FAR)
    with app.delayq.acting("maria"):
        app.delayq.cancel("order-1")
    with app.delayq.acting("ann"):
        app.delayq.select(all=True).cancel()


def rows(page):
    """The kind of each event with the id of its task."""
    table = page.html.partition("<tbody>")[2]
    found = re.findall(r"<tr><td>.*?</td><td>(.*?)</td>(.*?)</tr>", table, re.DOTALL)
    return [
        (re.sub("<[^>]*>", "", what).strip(), (re.findall(r"task\?id=([\w-]*)", rest) or [""])[0])
        for what, rest in found
    ]


@pytest.mark.usefixtures("events")
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"task": "shop.sync"}, [("cancelled", "order-2"), ("scheduled", "order-2")]),
        ({"by": "mar"}, [("cancelled", "order-1")]),
        ({"what": "scheduled"}, [("scheduled", "order-2"), ("scheduled", "order-1")]),
        ({"text": "cart:"}, [("cancelled", "order-1"), ("scheduled", "order-1")]),
        ({"by": "ann", "what": "cancelled"}, [("cancelled", "")]),
    ],
    ids=str,
)
def test_the_history_is_picked_by_task_actor_kind_and_id_or_key(browser, query, found):
    page = browser.get("/history", **query)
    assert rows(page) == found
    for name, value in query.items():
        assert re.search(f'name="{name}"[^>]* value="{value}"|value="{value}" selected', page.html)


@pytest.mark.usefixtures("events")
def test_a_filter_that_matches_nothing_says_so(browser):
    assert "No event has all of these" in browser.get("/history", by="nobody").text


def test_a_kind_that_is_none_is_an_error(browser):
    page = browser.get("/history", what="moved")
    assert (page.status, page.said[:16]) == (400, "what is 'moved';")


def test_the_history_goes_on_page_by_page_with_its_filters(app, browser, scheduled, limits):
    limits(web_history_shown=3)
    for number in range(4):
        scheduled(f"a{number}")
    for number in range(4):
        app.delayq.cancel(f"a{number}")
    pages = [*walk(browser, browser.get("/history"), NEXT)]
    assert [len(rows(page)) for page in pages] == [3, 3, 2]
    assert "First page" in pages[-1].text
    pages = [*walk(browser, browser.get("/history", what="scheduled"), NEXT)]
    assert [rows(page) for page in pages] == [
        [("scheduled", "a3"), ("scheduled", "a2"), ("scheduled", "a1")],
        [("scheduled", "a0")],
    ]


# Held keys.

HELD = {"unique_until": "finished", "conflict": "replace"}


@pytest.fixture
def held(app, scheduled):
    """Keys of three tasks that were delivered; a task waits behind the first one."""
    for number in range(3):
        scheduled(f"first-{number}", at=LONG_AGO, key=f"cart:{number}", **HELD)
    app.delayq.hand_over()
    scheduled("next", key="cart:0", **HELD)
    scheduled("waits", key="waits")


@pytest.mark.usefixtures("held")
def test_held_keys_are_listed_with_their_holder_the_end_and_who_waits(app, browser):
    page = browser.get("/keys")
    assert page.title.startswith("not delivered in time · Keys")
    assert "3 keys are held" in page.text
    row = page.text.partition("cart:0 ")[2].partition(" cart:1 ")[0]
    assert row.startswith("shop. remind first-0 ")
    assert ", or when it ends next , due in" in row
    assert page.text.count("nobody Free…") == 2
    assert "waits Free" not in page.text
    assert [page.url(f'href="([^"]*)" aria-label="Free cart:{n}"') for n in range(3)] == [
        f"/key?key=cart:{n}" for n in range(3)
    ]
    app.conf.delayq_history = 0
    assert "shop." not in browser.get("/keys").text


@pytest.mark.usefixtures("held")
def test_keys_are_picked_by_their_beginning_page_by_page(browser, limits):
    page = browser.get("/keys", q="cart:2")
    assert "1 key is held" in page.text
    assert "cart:1" not in page.text
    assert "No held key begins so" in browser.get("/keys", q="none").text

    limits(web_keys_shown=2)
    pages = [*walk(browser, browser.get("/keys", q="cart"), NEXT)]
    keys = [key for page in pages for key in re.findall(r"<bdi>(cart:\d)</bdi>", page.html)]
    assert sorted(keys) == ["cart:0", "cart:1", "cart:2"]
    assert "q=cart" in pages[0].url(NEXT)


def test_without_a_held_key_the_page_says_so_and_a_place_that_is_none_is_an_error(browser):
    assert "No key is held after a delivery" in browser.get("/keys").text
    assert "no task holds the key 'none'." in browser.get("/key?key=none").text
    assert browser.get("/keys", place="7:x").status == 400


@pytest.fixture
def second(app, scheduled):
    """A task waits behind the one that holds its key."""
    for task_id in ("first", "next"):
        scheduled(task_id, at=LONG_AGO, key="k", **HELD)
        app.delayq.hand_over()


@pytest.mark.usefixtures("second")
def test_a_key_that_is_held_is_freed_for_the_task_behind_it(browser, changed):
    assert "What holds its key" in browser.get("/task?id=next").text
    page = browser.get("/key?key=k")
    assert "task first holds the key 'k'; it was delivered" in page.text
    assert "at the latest, as its delivery set it." in page.text

    page = browser.change(page.action_with("Free the key"), action="free")

    assert page.said == "key k is free"
    assert "task next holds the key 'k', and waits" in page.text
    assert "Free the key" not in page.text
    assert [(one["action"], one["target"], one["answer"]) for one in changed] == [
        ("free", {"key": "k"}, Outcome.DONE)
    ]


@pytest.mark.usefixtures("second")
def test_only_the_delivery_that_was_seen_loses_its_key(app, browser):
    page = browser.get("/key?key=k")
    app.delayq.free(key="k")
    page = browser.change(page.action_with("Free the key"), action="free")
    assert page.status == 409
    assert page.said == "another task holds the key 'k' by now; nothing was changed"
