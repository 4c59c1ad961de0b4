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


def test_each_event_has_a_row_or_a_line_of_json_the_newest_first(app, said):
    app.send_task("shop.add", task_id="a\x1b[2J", queue="celery", delayq_at=FAR)
    app.delayq.cancel("a\x1b[2J")

    head, *rows = said("history")
    assert head.split() == ["WHEN", "(UTC)", "WHAT", "ID", "KEY", "QUEUE", "TASK", "BY"]
    assert [row.split()[2:] for row in rows] == [
        ["cancelled", r"a\x1b[2J", "celery", "shop.add"],
        ["scheduled", r"a\x1b[2J", "celery", "shop.add"],
    ]
    cancelled, scheduled = map(json.loads, said("history", "--json"))
    assert cancelled.pop("when") >= scheduled["when"]
    assert cancelled.pop("cursor") != scheduled["cursor"]
    task = {"id": "a\x1b[2J", "key": "", "task": "shop.add", "queue": "celery", "actor": ""}
    due = "2100-01-01T00:00:00+00:00"
    assert cancelled == {"what": "cancelled", **task, "due": due, "count": 1, "bulk": ""}


def test_history_says_that_nothing_is_kept(app, said):
    app.conf.delayq_history = 0
    assert said("history")[1:] == ["Nothing is kept: the setting delayq_history is 0."]
    assert said("history", "--json") == []


def test_history_shows_the_name_that_as_gives(app, run, said):
    app.send_task("shop.add", task_id="a", delayq_at=FAR)

    assert run("--as", "ann@support", "cancel", "a").exit_code == 0
    assert run("--as", "bob", "pause", "--queue", "mail").exit_code == 0
    app.send_task("shop.add", task_id="b", delayq_at=FAR)

    rows = [row.split()[2:] for row in said("history")[1:]]
    assert rows[1] == ["paused", "mail", "bob"]
    assert rows[2] == ["cancelled", "a", "celery", "shop.add", "ann@support"]
    past = [row.split()[2] for row in said("history", "--id", "a")[1:]]
    assert past == ["cancelled", "scheduled"]


def test_a_change_of_many_is_one_line_that_says_how_to_list_its_tasks(app, run, said):
    app.conf.delayq_history = 3
    for number in range(5):
        app.send_task("shop.add", task_id=f"a{number}", delayq_at=FAR, delayq_tags=["x"])
    run("--as", "ann", "cancel", "--tag", "x", "--yes")

    _, line, *others = said("history")

    bulk = line.split()[-2]
    assert line.split()[2:] == ["cancelled", "5", "tasks:", "--bulk", bulk, "ann"]
    assert len(others) == 3
    *rows, rest = said("history", "--bulk", bulk)
    assert [row.split()[2] for row in rows[1:]] == ["cancelled"] * 4
    assert rest == (
        "2 tasks of this change are not listed: the setting delayq_history keeps fewer."
    )
    assert "not both" in run("history", "--bulk", bulk, "--id", "a1").output


def test_a_name_that_is_none_changes_nothing(app, run):
    app.send_task("shop.add", task_id="a", delayq_at=FAR)
    result = run("--as", "a\nb", "cancel", "a")
    assert result.exit_code == 2
    assert "expected text of 1 to 64 bytes" in result.output
    assert app.delayq.get("a") is not None


def test_show_tells_the_past_of_a_task_that_waits_and_of_one_that_left(app, run, said):
    app.send_task("shop.add", task_id="a", delayq_at=FAR)
    run("--as", "ann", "reschedule", "a", "by:+1h")

    assert [line.split("UTC  ")[1] for line in said("show", "a")[-2:]] == [
        "rescheduled by ann", "scheduled",
    ]  # fmt: skip
    run("--as", "bob", "cancel", "a")
    assert run("show", "a").stdout.splitlines()[0].endswith("cancelled by bob")


def test_events_are_picked_by_task_author_kind_and_text_and_go_on_behind_a_cursor(app, said):
    app.send_task("shop.add", task_id="order-1", delayq_at=FAR, delayq_key="cart:1")
    app.send_task("shop.sub", task_id="order-2", delayq_at=FAR)
    with app.delayq.acting("maria"):
        app.delayq.cancel("order-1")

    def ids(*options):
        return [json.loads(line)["id"] for line in said("history", "--json", *options)]

    assert ids("--task", "shop.sub") == ["order-2"]
    assert ids("--by", "mari") == ["order-1"]
    assert ids("--what", "scheduled") == ["order-2", "order-1"]
    assert ids("--text", "cart:") == ["order-1", "order-1"]
    [first] = said("history", "--json", "-n", "1")
    assert ids("--cursor", json.loads(first)["cursor"]) == ["order-2", "order-1"]
