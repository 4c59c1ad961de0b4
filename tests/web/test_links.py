"""Signed links: of one user and one store; and answers, which say when, and go once untrue."""

import hashlib
import hmac
import logging
import re
from datetime import datetime
from urllib.parse import parse_qsl, urlencode

import pytest

from celery_delayq.contrib.web import page_changed
from tests.app.support import FAR, LONG_AGO, redis_ms
from tests.support.shards import each
from tests.web.support import FORGED, counted, form_of, worked

SAID = "task a was cancelled"


@pytest.fixture
def app(app):
    app.conf.delayq_undo = (3600, 100)
    return app


@pytest.fixture
def answer(browser, task):
    """The URL of an answer: task a was cancelled."""
    return browser.post(form_of(browser), action="cancel").location


def with_values(url, **changed):
    path, _, query = url.partition("?")
    return f"{path}?{urlencode({**dict(parse_qsl(query)), **changed})}"


def swapped(url, one, other):
    pairs = dict(parse_qsl(url.partition("?")[2]))
    return with_values(url, **{one: pairs[other], other: pairs[one]})


@pytest.mark.parametrize(
    "change",
    [
        lambda url: with_values(url, said="600 tasks were cancelled"),
        lambda url: with_values(url, id="b"),
        lambda url: with_values(url, on="1"),
        lambda url: with_values(url, then="left 1"),
        lambda url: swapped(url, "then", "said"),
        lambda url: url[:-1],
        lambda url: url.partition("&sign=")[0],
        lambda url: re.sub("&on=[0-9]+", "", url),
        lambda url: f"{url}&said=more",
    ],
)
def test_an_answer_that_these_pages_did_not_give_is_refused(browser, answer, change):
    assert browser.get(answer).said == SAID
    assert change(answer) != answer
    page = browser.get(change(answer))
    assert (page.status, page.said) == (400, FORGED)


@pytest.mark.usefixtures("many")
def test_a_link_of_another_user_is_refused(app, browse, browser, answer):
    step = counted(browser, {}, action="cancel").action_with("<button")
    other = browse(app, user=lambda _: "bob")
    for page in (other.get(answer), other.get(step), other.post(step)):
        assert (page.status, page.said) == (400, FORGED)
    assert len([*app.delayq.tasks()]) == 10


def moved(page):
    """Whether a move of many has come to its end."""
    return "Undo:" in page.text


def secrets(redis):
    """The secrets in the store, without its name."""
    found = [redis.hget(meta, "secret") for meta in each("meta")]
    return [secret.split(b" ")[1].decode() for secret in found if secret]


def signed(url, secret, **changed):
    """A URL with other values, signed for alice."""
    path, _, query = with_values(url, **changed).partition("?")
    pairs = [pair for pair in parse_qsl(query) if pair[0] != "sign"]
    text = repr(("alice", path[1:], sorted(pairs))).encode()
    sign = hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()[:32]
    return f"{path}?{urlencode([*pairs, ('sign', sign)])}"


def test_what_a_reader_knows_of_the_store_signs_nothing(app, browser, redis, answer):
    name, url = redis.hget(each("meta")[0], "store").decode(), app.delayq.services.endpoint.url
    for known in ("", name, url, f"{name} {url}"):
        assert browser.get(signed(answer, known)).said == FORGED
    # So that those were signed as these pages do it.
    assert browser.get(signed(answer, *secrets(redis))).said == SAID


@pytest.mark.usefixtures("many")
def test_the_secret_has_32_bytes_and_stands_nowhere(app, browser, redis, caplog):
    caplog.set_level(logging.DEBUG)
    asked = counted(browser, {"tag": "even"}, action="reschedule", value="+2h")
    [secret] = secrets(redis)
    assert len(bytes.fromhex(secret)) == 32

    page, _ = worked(browser, asked, ends=moved)
    texts = [asked.html, page.html, browser.get("/queues").html]
    texts += [browser.get(path).html for path in ("/", "/tasks", "/task?id=task-01", "/history")]
    texts += map(repr, [*app.delayq.dump(), *app.delayq.check(), app.delayq.status()])
    texts += [repr(app.delayq.health()), caplog.text, *(task.cursor for task in app.delayq.tasks())]
    assert not [text for text in texts if secret in text]


def test_each_process_has_the_same_secret(app, browse, redis, answer):
    assert browse(app).get(answer).said == SAID
    assert len(secrets(redis)) == 1


@pytest.mark.parametrize(
    "end",
    [
        lambda redis: redis.flushall(),
        # As for a store without tasks that another broker's app joins.
        lambda redis: redis.hset(each("meta")[0], "store", "another name"),
    ],
)
def test_a_store_that_is_another_one_has_another_secret(browser, redis, scheduled, answer, end):
    before = secrets(redis)
    end(redis)
    scheduled("a")
    assert browser.get(answer).said == FORGED
    assert browser.change(form_of(browser), action="cancel").said == SAID
    assert secrets(redis) != before


# Answers.

TIME = re.compile(r'<p>[^<]*</p> <time datetime="([^"]*)" data-form="(\w+)">')


def test_an_answer_says_when_it_was_given(app, browser, redis, answer):
    when, form = TIME.search(browser.get(answer).html).groups()
    cancelled = app.delayq.history(1)[0].when
    given_ms = datetime.fromisoformat(when).timestamp() * 1000
    assert cancelled.timestamp() * 1000 <= given_ms <= redis_ms(redis)
    assert form == "clock"


@pytest.mark.usefixtures("many")
def test_the_answers_about_many_say_when_too(browser):
    asked = counted(browser, {"tag": "even"}, action="reschedule", value="+2h")
    page, _ = worked(browser, asked, ends=moved)
    assert TIME.search(page.html)
    page = browser.change("/selected", sure="1", one=["1 task-01"], action="cancel")
    assert TIME.search(page.html)


def test_an_answer_of_yesterday_has_its_date(browser, redis, answer):
    yesterday = int(redis_ms(redis)) - 13 * 3_600_000
    page = browser.get(signed(answer, *secrets(redis), on=yesterday))
    assert TIME.search(page.html)[2] == "near"


@pytest.mark.parametrize(
    "change",
    [
        lambda delayq: delayq.undo("a"),
        lambda delayq: delayq.undo("a") and delayq.reschedule("a", by=1),
        lambda delayq: delayq.undo("a") and delayq.cancel("a"),
    ],
)
def test_the_answer_to_a_cancel_goes_with_the_next_change(app, browser, answer, change):
    for _ in range(2):
        assert browser.get(answer).said == SAID
    change(app.delayq)
    page = browser.get(answer)
    assert SAID not in page.text
    assert page.status == 200


@pytest.mark.parametrize(
    "change",
    [
        lambda delayq: delayq.reschedule("a", by=1),
        lambda delayq: delayq.edit("a", priority=3),
        lambda delayq: delayq.cancel("a"),
    ],
)
def test_the_answer_to_a_move_goes_with_the_next_change(app, browser, task, change):
    moved = browser.post(form_of(browser), action="reschedule", value="by:+1h").location
    for _ in range(2):
        assert browser.get(moved).said == "task a was rescheduled"
    change(app.delayq)
    assert "was rescheduled" not in browser.get(moved).text


def test_a_refusal_goes_with_the_next_change_too(app, browser, task):
    app.delayq.edit("a", priority=3)
    refused = browser.post(f"/task?id=a&revision={task.revision}", action="cancel").location
    assert "was changed since you loaded the page" in browser.get(refused).said
    app.delayq.edit("a", priority=4)
    assert browser.get(refused).status == 200
    assert "was changed since" not in browser.get(refused).text


def test_a_task_that_was_made_due_is_said_to_be_so_once_it_is_delivered(app, browser, scheduled):
    scheduled("a")
    answer = browser.post(form_of(browser), action="run_now").location
    assert browser.get(answer).said == "task a was made due now"
    assert app.delayq.hand_over() == 1
    assert browser.get(answer).said == "task a was made due now"
    app.send_task("shop.remind", (1,), task_id="a", delayq_at=FAR)
    assert "was made due now" not in browser.get(answer).text


def test_the_answer_to_a_pause_goes_once_it_is_resumed(app, browser, scheduled):
    scheduled("a", at=LONG_AGO, queue="mail")
    paused = browser.post("/paused", action="pause", kind="queue", name="mail").location
    assert browser.get(paused).said == "queue mail is paused"
    resumed = browser.post("/paused", action="resume", kind="queue", name="mail").location
    assert "queue mail is paused" not in browser.get(paused).text
    assert browser.get(resumed).said == "queue mail is resumed"
    app.delayq.pause(queue="mail")
    for answer in (paused, resumed):
        assert browser.get(answer).said is None


def test_the_answer_about_everything_goes_too(app, browser):
    paused = browser.post("/paused", action="pause", kind="everything", sure="1").location
    assert browser.get(paused).said == "everything is paused"
    app.delayq.resume(all=True)
    assert browser.get(paused).said is None


def test_the_answer_about_a_key_goes_once_another_task_holds_it(app, browser, scheduled):
    scheduled("first", at=LONG_AGO, key="k", unique_until="finished")
    app.delayq.hand_over()
    page = browser.get("/key?key=k")
    freed = browser.post(page.action_with("Free the key"), action="free").location
    assert browser.get(freed).said == "key k is free"
    scheduled("next", key="k")
    assert "key k is free" not in browser.get(freed).text


def test_the_answer_about_a_rule_goes_with_its_next_change(app, browser):
    app.delayq.every("r", app.tasks["shop.remind"].s(1), "0 9 * * *")
    act = browser.get("/rules").action_with("Pause")
    paused = browser.post(act, action="pause").location
    assert browser.get(paused).said == "rule r is paused"
    app.delayq.rule("r").resume()
    assert browser.get(paused).said is None
    act = browser.get("/rules").action_with("Pause")
    removed = browser.post(act, action="remove", sure="1").location
    assert browser.get(removed).said == "rule r is removed"
    app.delayq.every("r", app.tasks["shop.remind"].s(1), "0 9 * * *")
    assert browser.get(removed).said is None


# The undo of one move.


def test_a_move_is_undone_by_a_button_beside_its_answer(app, browser, task):
    page = browser.change(form_of(browser), action="reschedule", value="in 2 h")
    assert app.delayq.get("a").due.timestamp() != FAR
    value = re.search(r'name="value" value="([^"]*)">\s*<button[^>]*>Undo the move<', page.html)[1]
    act = page.action_with("Undo the move")

    page = browser.change(act, action="reschedule", value=value)

    assert page.said == "task a was rescheduled"
    assert app.delayq.get("a").due.timestamp() == FAR
    # It is there once: the task has another revision since.
    assert browser.change(act, action="reschedule", value=value).status == 409


def test_a_move_to_before_now_says_so(browser, scheduled):
    scheduled("a", at=LONG_AGO)
    page = browser.change(form_of(browser), action="reschedule", value="in 2 h")
    assert "Undo the move: it is due at once" in page.text


def test_no_button_undoes_a_move_that_another_followed_at_once(app, browser, task):
    def follow(sender, **_):
        app.delayq.reschedule("a", by=1)

    page_changed.connect(follow)
    page = browser.change(form_of(browser), action="reschedule", value="by:+1h")
    assert app.delayq.get("a").due.timestamp() == FAR + 3601
    assert "Undo the move" not in page.text


def test_no_button_undoes_a_move_once_the_task_has_changed(app, browse, browser, task, die):
    moved = browser.post(form_of(browser), action="reschedule", value="by:+1h").location
    assert "Undo the move" in browser.get(moved).text
    assert "Undo the move" not in browse(app, allow=lambda _: "read").get(moved).text
    app.delayq.edit("a", priority=3)
    assert "Undo the move" not in browser.get(moved).text
    die("dead")
    act = browser.get("/task?id=dead").action_with("Remove")
    page = browser.change(act, action="reschedule", value="in 2 h")
    assert page.said == "task dead was rescheduled"
    assert "Undo the move" not in page.text
