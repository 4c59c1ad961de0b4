"""Records and messages that no program of this package wrote: shown as far as they are known."""

import re

import pytest

from celery_delayq.core.store.record import FORM
from tests.app.support import FAR, LONG_AGO
from tests.app.test_unreadable import BODIES, MESSAGES, PROPERTIES
from tests.support.shards import keys_of


@pytest.fixture
def put(app, redis):
    """Schedule a task, and replace the message in its record."""

    def put(message):
        app.send_task("t", (1,), task_id="a", delayq_at=FAR)
        records = keys_of("a")["records"]
        record = redis.hget(records, "a")
        header_end = record.index(b":") + 1 + len("celery")
        redis.hset(records, "a", record[: header_end + FORM] + b"I" + message)

    return put


OTHERS = [b"{" + PROPERTIES + b', "headers": {"task": "t"}, "body": %s, "x": ' % b for b in BODIES]


@pytest.mark.parametrize("message", [*MESSAGES.values(), *OTHERS])
def test_a_message_that_is_none(browser, put, message):
    put(message)

    listed, shown = browser.get("/tasks"), browser.get("/task?id=a")

    assert (listed.status, shown.status) == (200, 200)
    assert "its message cannot be read: " in shown.text or message in OTHERS
    assert (
        browser.change(shown.action_with("Cancel"), action="cancel").said == "task a was cancelled"
    )


@pytest.fixture
def dead(app, redis):
    """A task that is dead as its record cannot be read."""
    app.send_task("t", (1,), task_id="a", delayq_at=LONG_AGO)
    redis.hset(keys_of("a")["records"], "a", "no record")
    app.delayq.hand_over()
    assert app.delayq.counts().dead == 1


@pytest.mark.usefixtures("dead")
def test_a_record_that_is_none_is_shown_and_removed(app, browser):
    page = browser.get("/task?id=a")

    assert page.status == 409
    assert page.said.startswith("the record of task 'a' cannot be read: ")
    assert browser.change(page.action_with("Remove"), action="remove").said == "task a was removed"
    assert app.delayq.counts().dead == 0


@pytest.mark.usefixtures("dead")
def test_a_record_that_is_none_is_listed_and_can_be_ticked(app, browser):
    listed = browser.get("/tasks?state=DEAD")
    [value] = re.findall(r'name="one" value="([^"]*)"', listed.html)

    page = browser.change("/selected", one=value, action="remove", sure="1")

    assert "unknown" in listed.text
    assert page.said == "1 task of 1 was removed."
    assert app.delayq.counts().dead == 0
