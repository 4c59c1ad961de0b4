"""`delayq free`: says what holds a key, asks, and frees it."""

import json
import re

import pytest

from tests.app.support import FAR


@pytest.fixture
def held(app):
    """A delivered task holds the key."""
    made = app.signature("t").set(task_id="a")
    app.delayq.schedule(made, after=0, key="k", unique_until="finished", unique_for=3600)
    assert app.delayq.hand_over() == 1


@pytest.mark.usefixtures("held")
def test_free_says_what_holds_the_key_asks_and_frees_it(app, run):
    asked = run("free", "k")
    assert asked.exit_code == 1
    sentence, question = asked.output.splitlines()
    assert re.fullmatch(
        r"task a holds the key 'k'; it was delivered \d+ s ago \(.* UTC\), and holds it until in "
        r"(59 min \d+ s|1 h) \(.* UTC\) at the latest, as its delivery set it",
        sentence,
    )
    assert question == "Error: free it? There is no terminal to confirm; pass --yes"
    assert app.delayq.holder(key="k").id == "a"

    done = run("free", "k", "--yes")
    assert (done.exit_code, done.output.splitlines()[1:]) == (0, ["key 'k' is free"])
    assert app.delayq.holder(key="k") is None


def test_a_key_that_it_cannot_free_is_a_sentence_and_status_1(app, refused):
    assert refused("free", "k", "--yes") == ["Error: no task holds the key 'k'"]
    app.send_task("t", task_id="a", delayq_key="k", delayq_at=FAR)
    assert refused("free", "k", "--yes") == [
        "Error: task a holds the key 'k', and waits; cancel it to free the key"
    ]


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize(
    ("again", "why"),
    [
        (False, "no task holds the key 'k' any more"),
        (True, "another task holds the key 'k' by now"),
    ],
)
def test_a_key_that_another_task_holds_by_now_stays(between, app, refused, again, why):
    def meanwhile():
        if between.asked["free"] == 1:
            app.delayq.free(key="k")
            if again:
                app.delayq.schedule(app.signature("t"), after=0, key="k", unique_until="finished")
                app.delayq.hand_over()

    between.before("free", meanwhile)
    assert refused("free", "k", "--yes")[1:] == [f"Error: {why}; nothing was changed"]


@pytest.mark.usefixtures("held")
def test_list_and_show_say_until_when_one_waits_behind_it(app, said, refused):
    assert refused("show", "--key", "k")[0].startswith("task a holds the key 'k'; it was ")
    made = app.signature("t").set(task_id="b")
    app.delayq.schedule(made, at=FAR, key="k", conflict="replace")

    assert re.search(r"scheduled, behind a for at most (59 min \d+ s|1 h)$", said("list")[1])
    shown = said("show", "--key", "k")
    assert shown[0] == said("show", "b")[0]
    until = r"in (59 min \d+ s|1 h) \(.* UTC\)"
    assert any(re.fullmatch(rf"behind_until {until}", line) for line in shown)
    note = rf"! it waits behind task a, which holds its key until {until} at the latest"
    assert any(re.fullmatch(note, line) for line in shown)

    [sentence] = refused("run-now", "b")
    waits = rf"waits behind task a, which holds its key until {until} at the latest"
    assert re.fullmatch(f"task b is due now, but {waits}", sentence)
    told = ["1 task made due now", "1 of these wait behind tasks that hold their keys"]
    assert refused("run-now", "--all", "--yes") == told


def test_show_takes_an_id_or_a_key(app, misused, refused):
    for line in (["show"], ["show", "a", "--key", "k"]):
        assert misused(*line) == "Error: Name one task, by its id or --key."
    assert refused("show", "--key", "k")[0].startswith("task k is not scheduled in redis://")


@pytest.mark.usefixtures("held")
def test_keys_lists_what_delivered_tasks_hold_and_who_waits_behind(app, run, said):
    made = app.signature("t").set(task_id="b")
    app.delayq.schedule(made, at=FAR, key="k", conflict="replace")
    app.delayq.schedule(app.signature("t"), after=0, key="other", unique_until="finished")
    app.delayq.schedule(app.signature("t"), at=FAR, key="waits")
    app.delayq.hand_over()

    head, *rows = said("keys")
    assert head.split() == ["KEY", "TASK", "SINCE", "(UTC)", "UNTIL", "BEHIND", "IT", "DUE"]
    assert sorted(row.split()[0] for row in rows) == ["k", "other"]
    [row] = [json.loads(line) for line in said("keys", "k", "--json")]
    assert (row["key"], row["id"], row["state"], row["behind"]) == ("k", "a", "left", "b")
    assert row["behind_due"] == "2100-01-01T00:00:00+00:00"
    assert row["since"] < row["until"]
    assert "there are more; --limit ends this list at 1" in run("keys", "-n", "1").output
    assert [line.split() for line in said("keys", "none")] == [head.split()]
