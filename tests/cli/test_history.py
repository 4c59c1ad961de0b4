"""`celery delayq history`."""

import json

import pytest

from tests.app.support import FAR


@pytest.fixture
def app(delayq_app, url):
    app = delayq_app(url, delayq_history=10)

    @app.task(name="shop.add")
    def add():
        pass

    return app


def schedule_and_cancel(app):
    app.send_task("shop.add", task_id="a\x1b[2J", queue="celery", delayq_at=FAR)
    app.delayq.cancel("a\x1b[2J")


def test_what_happened_the_newest_first(app, said):
    schedule_and_cancel(app)

    head, *rows = said("history")

    assert head.split() == ["WHEN", "(UTC)", "WHAT", "ID", "KEY", "QUEUE", "TASK"]
    assert [row.split()[2:] for row in rows] == [
        ["cancelled", r"a\x1b[2J", "celery", "shop.add"],
        ["scheduled", r"a\x1b[2J", "celery", "shop.add"],
    ]


def test_as_many_as_one_wants(app, said):
    for number in range(5):
        app.send_task("shop.add", task_id=f"a{number}", delayq_at=FAR)

    assert [row.split()[3] for row in said("history", "--limit", "2")[1:]] == ["a4", "a3"]


def test_json_has_a_line_for_each_event(app, said):
    schedule_and_cancel(app)

    cancelled, scheduled = map(json.loads, said("history", "--json"))

    when = cancelled.pop("when")
    assert when >= scheduled["when"]
    assert cancelled == {
        "what": "cancelled",
        "id": "a\x1b[2J",
        "key": "",
        "due": "2100-01-01T00:00:00+00:00",
        "task": "shop.add",
        "queue": "celery",
    }


def test_it_says_that_nothing_is_kept(app, said):
    app.conf.delayq_history = 0

    assert said("history")[1:] == ["Nothing is kept: the setting delayq_history is 0."]
    assert said("history", "--json") == []
