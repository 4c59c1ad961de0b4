"""`delayq undo`: brings back cancelled tasks, or lists those that can be."""

import json
import re

import pytest

from tests.app.support import FAR, fall_due_after_cancel
from tests.support.shards import with_one_shard


@pytest.fixture
def app(delayq_app, url):
    app = delayq_app(url, delayq_undo=(3600, 100))
    for number in range(10):
        app.send_task("t", task_id=f"a{number}", delayq_at=FAR, delayq_tags=["x"])
    return app


def test_of_several_each_is_answered_and_one_that_is_not_back_is_status_1(app, said, refused):
    for task_id in ("a1", "a2", "a3"):
        app.delayq.cancel(task_id)
    assert said("undo", "a3") == ["task a3 is back, due 2100-01-01 00:00:00 UTC"]
    assert refused("undo", "a1", "nobody", "a2") == [
        "task a1 is back, due 2100-01-01 00:00:00 UTC",
        "the cancel of task 'nobody' cannot be undone: no cancel of it is kept; see delayq_undo",
        "task a2 is back, due 2100-01-01 00:00:00 UTC",
    ]
    assert app.delayq.counts().scheduled == 10


def test_a_cancel_of_many_says_how_to_undo_it_and_that_brings_them_back(app, said):
    [line] = [one for one in said("cancel", "--tag", "x", "--yes") if "bring them back" in one]
    words = line.partition("celery -A proj delayq ")[2].split()

    assert said(*words) == ["10 tasks back"]
    assert app.delayq.counts().scheduled == 10


@with_one_shard
def test_of_a_cancel_of_many_the_line_says_how_many_can_be_brought_back(app, said, refused, limits):
    app.conf.delayq_undo = (3600, 2)
    limits(selection_chunk=2)
    done, line = said("cancel", "--tag", "x", "--yes")
    kept = len([*app.delayq.undoable()])
    assert 0 < kept < 10
    assert (done, line.partition(":")[0]) == (
        "10 tasks cancelled", f"to bring {kept} of the 10 tasks back",
    )  # fmt: skip

    back, lost = refused(*line.partition("celery -A proj delayq ")[2].split())

    assert back == f"{kept} tasks back"
    assert lost.startswith(f"{10 - kept} tasks cannot come back: no undo of theirs is kept")


def test_a_bulk_that_is_not_known_is_status_1(app, refused):
    assert refused("undo", "--bulk", "5f0c1d2e3a4b") == [
        "0 tasks back", "no change of many with this name is kept; see delayq_undo",
    ]  # fmt: skip


def test_without_the_setting_nothing_is_kept_and_that_is_said(app, said, run):
    app.conf.delayq_undo = 0
    assert said("cancel", "--tag", "x", "--yes") == ["10 tasks cancelled"]
    assert "Nothing is kept: the setting delayq_undo is 0." in run("undo").output


def test_of_a_bulk_the_first_reasons_are_shown(app, refused):
    bulk = app.delayq.select(tag="x").cancel().bulk
    for number in range(7):
        app.send_task("t", task_id=f"a{number}", delayq_at=FAR)

    first, *reasons, last = refused("undo", "--bulk", bulk)

    assert (first, last, len(reasons)) == ("3 tasks back", "and 2 more are not back", 5)
    assert "another task has its id" in reasons[0]


def test_a_task_whose_due_time_is_over_comes_back_only_with_now(app, said, refused, redis):
    app.send_task("t", task_id="b", delayq_at=FAR)
    app.delayq.cancel("b")
    fall_due_after_cancel(redis, "b")

    [sentence] = refused("undo", "b")
    why = r"its due time, \S+, is over; run it now instead"
    assert re.fullmatch(f"the cancel of task 'b' cannot be undone: {why}", sentence)
    said("undo", "b", "--now")


def test_without_an_id_it_lists_what_can_be_brought_back(app, said):
    app.delayq.cancel("a1")
    bulk = app.delayq.select(tag="x").cancel().bulk
    head, newest, oldest = said("undo")
    assert head.split()[-2:] == ["MOVED", "UNDO"]
    assert newest.split()[-5:] == ["9", "tasks", "undo", "--bulk", bulk]
    assert oldest.split()[-3:] == ["a1", "undo", "a1"]
    facts = [json.loads(line) for line in said("undo", "--json")]
    assert [one.pop("when") for one in facts]
    assert facts == [{"bulk": bulk, "count": 9}, {"id": "a1"}]


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


def test_a_move_of_many_says_how_to_undo_it_and_is_listed(app, said):
    done, line = said("reschedule", "--tag", "x", "--yes", "by:+1h")
    assert done == "10 tasks rescheduled"
    assert line.startswith("to move them back: celery -A proj delayq undo --bulk ")
    words = line.partition("celery -A proj delayq ")[2].split()
    _, listed = said("undo")
    assert listed.split()[-6:] == ["10", "tasks,", "moved", *words]
    [facts] = [json.loads(one) for one in said("undo", "--json")]
    assert (facts["bulk"], facts["count"], facts["moved"]) == (words[-1], 10, True)

    assert said(*words) == ["10 tasks back"]
    assert {task.due.timestamp() for task in app.delayq.tasks()} == {FAR}
