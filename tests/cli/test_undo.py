"""`delayq undo`: brings back cancelled tasks, or lists those that can be."""

import json
import re

import pytest

from tests.app.support import FAR, redis_ms
from tests.support.waiting import eventually


@pytest.fixture
def app(delayq_app, url):
    app = delayq_app(url, delayq_undo=(3600, 100))
    for number in range(10):
        app.send_task("t", task_id=f"a{number}", delayq_at=FAR, delayq_tags=["x"])
    return app


def lines(result):
    return result.output.splitlines()


def test_a_task_is_brought_back_by_its_id(app, run):
    app.delayq.cancel("a1")
    done = run("undo", "a1")
    assert (done.exit_code, lines(done)) == (0, ["task a1 is back, due 2100-01-01 00:00:00 UTC"])
    assert app.delayq.get("a1")


def test_of_several_each_is_answered_and_one_that_is_not_back_is_status_1(app, run):
    app.delayq.cancel("a1")
    app.delayq.cancel("a2")
    done = run("undo", "a1", "nobody", "a2")
    assert done.exit_code == 1
    assert lines(done) == [
        "task a1 is back, due 2100-01-01 00:00:00 UTC",
        "the cancel of task 'nobody' cannot be undone: no cancel of it is kept; see delayq_undo",
        "task a2 is back, due 2100-01-01 00:00:00 UTC",
    ]


def test_a_cancel_of_many_says_how_to_undo_it_and_that_brings_them_back(app, run):
    cancelled = run("cancel", "--tag", "x", "--yes")
    [line] = [line for line in lines(cancelled) if "bring them back" in line]
    words = line.partition("celery -A proj delayq ")[2].split()

    done = run(*words)

    assert (done.exit_code, lines(done)) == (0, ["10 tasks back"])
    assert app.delayq.counts().scheduled == 10


def test_without_the_setting_a_cancel_of_many_says_nothing_of_it(app, run):
    app.conf.delayq_undo = 0
    assert lines(run("cancel", "--tag", "x", "--yes")) == ["10 tasks cancelled"]


def test_of_a_bulk_the_first_reasons_are_shown(app, run):
    bulk = app.delayq.select(tag="x").cancel().bulk
    for number in range(7):
        app.send_task("t", task_id=f"a{number}", delayq_at=FAR)
    done = run("undo", "--bulk", bulk)
    assert done.exit_code == 1
    assert len(lines(done)) == 7
    assert (lines(done)[0], lines(done)[-1]) == ("3 tasks back", "and 2 more are not back")
    assert "another task has its id" in lines(done)[1]


def test_a_task_whose_due_time_is_over_comes_back_only_with_now(app, run, redis):
    soon = redis_ms(redis) / 1000 + 0.1
    app.send_task("t", task_id="b", delayq_at=soon)
    app.delayq.cancel("b")
    eventually(lambda: redis_ms(redis) > soon * 1000 + 1)

    refused = run("undo", "b")
    assert refused.exit_code == 1
    assert re.fullmatch(
        r"the cancel of task 'b' cannot be undone: its due time, \S+, is over; run it now instead",
        refused.output.strip(),
    )
    assert run("undo", "b", "--now").exit_code == 0


def test_without_an_id_it_lists_what_can_be_brought_back(app, run):
    app.delayq.cancel("a1")
    bulk = app.delayq.select(tag="x").cancel().bulk
    shown = run("undo")
    assert shown.exit_code == 0
    head, newest, oldest = lines(shown)
    assert head.split()[-2:] == ["CANCELLED", "UNDO"]
    assert newest.split()[-5:] == ["9", "tasks", "undo", "--bulk", bulk]
    assert oldest.split()[-3:] == ["a1", "undo", "a1"]
    facts = [json.loads(line) for line in lines(run("undo", "--json"))]
    assert [{name: one[name] for name in one if name != "when"} for one in facts] == [
        {"bulk": bulk, "count": 9},
        {"id": "a1"},
    ]


def test_without_the_setting_it_says_that_nothing_is_kept(app, run):
    app.conf.delayq_undo = 0
    assert "Nothing is kept: the setting delayq_undo is 0." in run("undo").output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["a", "--bulk", "b"], "Name tasks by id, or a --bulk, not both."),
        (["--bulk", "a b"], "bulk is 'a b'; expected the bulk of a Count"),
        (["x" * 600], "task_id is 'xxxxxx"),
    ],
)
def test_a_wrong_line_is_refused_in_a_sentence(run, words, sentence):
    done = run("undo", *words)
    assert done.exit_code != 0
    assert sentence in " ".join(done.output.split())
