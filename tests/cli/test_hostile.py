"""Control characters in task names, ids, queues and arguments do not reach a terminal."""

import json

import pytest

from tests.app.support import FAR
from tests.operations.test_cli import HOSTILE, printable


@pytest.mark.parametrize("field", ["task", "id", "queue"])
def test_a_row_stays_one_row_of_plain_text(app, run, field):
    for number, text in enumerate(HOSTILE):
        names = {"task": "t", "id": f"{number}", "queue": "q", field: text}
        app.send_task(names["task"], task_id=names["id"], queue=names["queue"], delayq_at=FAR)
    output = run("list").output
    assert output.count("\n") == 1 + len(HOSTILE)
    assert all(printable(line) for line in output.split("\n")), ascii(output)


def test_show_prints_plain_text_and_json_carries_the_text_as_it_is(app, run, said):
    text = "".join(HOSTILE)
    app.send_task(text, (text,), {text: text}, task_id=text, queue=text, delayq_at=FAR)

    output = run("show", text).output
    assert all(printable(line) for line in output.split("\n")), ascii(output)
    assert len(output.splitlines()) == 12
    [line] = said("list", "--json")
    assert (json.loads(line)["id"], json.loads(line)["task"]) == (text, text)
    assert printable(line)


def test_wide_characters_are_listed_as_they_are(app, said):
    app.send_task("日本.タスク", task_id="a", queue="süß", delayq_at=FAR)
    assert said("list")[1].endswith("日本.タスク        süß    scheduled")


def test_an_id_that_looks_like_an_option_can_follow_a_double_dash(app, said):
    app.send_task("t", task_id="--json", delayq_at=FAR)
    assert said("cancel", "--", "--json") == ["task --json cancelled"]
