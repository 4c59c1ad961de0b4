"""`delayq list`: aligned columns in due order, or a JSON object a line."""

import json
import re

import pytest

from tests.app.support import FAR, LONG_AGO
from tests.support.places import at
from tests.support.shards import keys_of

pytestmark = [pytest.mark.operations, pytest.mark.libraries]


@pytest.fixture
def three(app):
    for number, name in enumerate(["shop.remind", "mail", "shop.a.very.long.name"]):
        app.send_task(
            name, (number,), task_id=f"task-{number}", queue="q" * (number + 1),
            delayq_at=FAR + 60 * number + 0.25,
        )  # fmt: skip


def ids(lines):
    return [line.split()[0] for line in lines[1:]]


def without_in(line):
    """A line without the time left until it is due, which is narrower when no hour is left."""
    line = re.sub(r" {2,}[\d,]+ d( \d+ h)? {2,}", "  --  ", line)
    return re.sub(r" +IN  ", " IN  ", line)


def test_columns_are_aligned_and_in_due_order(three, said):
    assert [without_in(line) for line in said("list")] == [
        "ID      DUE (UTC) IN  TASK                   ARGS  QUEUE  STATE",
        "task-0  2100-01-01 00:00:00.250  --  shop.remind            (0,)  q      scheduled",
        "task-1  2100-01-01 00:01:00.250  --  mail                   (1,)  qq     scheduled",
        "task-2  2100-01-01 00:02:00.250  --  shop.a.very.long.name  (2,)  qqq    scheduled",
    ]


def test_a_list_of_an_empty_store_says_so_and_which_store_that_is(said, redis_server, printed):
    assert said("list") == [f"no task waits in {redis_server.url()} (prefix delayq)"]
    assert printed("list") == []
    assert said("list", "--json") == []


def test_an_unknown_name_is_reported_as_one(app, said, redis_server):
    app.send_task("t", queue="mail", delayq_at=FAR)

    assert said("list", "--queue", "maill") == [
        f"no such task waits in {redis_server.url()} (prefix delayq)",
        "this app knows no queue 'maill', and nothing waits for it; did you mean mail?",
    ]
    assert said("list", "--json", "--task", "shop.remnd") == [
        "this app knows no task 'shop.remnd', and none waits"
    ]


def test_arguments_are_shown_as_in_logs(app, said):
    hides = {"argsrepr": "('***',)", "kwargsrepr": "{'token': '***'}"}
    app.send_task("t", (1,), {"x": 2}, delayq_at=FAR)
    app.send_task("t", ("a secret",), {"token": "secret"}, delayq_at=FAR + 1, **hides)

    told, hidden = said("list")[1:]
    assert "(1,) {'x': 2}" in told
    assert "('***',) {'token': '***'}" in hidden
    assert "secret" not in hidden


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--due-from", str(FAR + 60.25)], [1, 2]),
        (["--due-before", "2100-01-01T00:01:00.250Z"], [0]),
        (["--due-from", str(FAR + 1), "--due-before", str(FAR + 100)], [1]),
        *((["-n", "2"], [0, 1]), (["--limit", "0"], []), (["-n", "99"], [0, 1, 2])),
        (["--task", "mail", "--queue", "q"], []),
        (["--task", "mail", "--task", "shop.remind"], [0, 1]),
        (["--queue", "q", "--queue", "qqq", "--queue", "none"], [0, 2]),
        (["--state", "Scheduled"], [0, 1, 2]),
        (["--state", "paused", "--dead", "--state", "scheduled", "--queue", "qq"], [1]),
    ],
    ids=str,
)
def test_a_list_is_bounded_by_time_and_number_and_has_the_picked_tasks(
    three, printed, options, expected
):
    assert ids(printed("list", *options)) == [f"task-{number}" for number in expected]


def test_a_hundred_come_unless_asked_for_more(app, printed):
    for number in range(105):
        app.send_task("t", delayq_at=FAR + number)
    assert len(printed("list")) == 1 + 100
    assert len(printed("list", "-n", "1000")) == 1 + 105
    assert len(printed("list", "--json")) == len(printed("list", "--ids")) == 105


def test_json_is_an_object_a_line(three, said, app):
    objects = [json.loads(line) for line in said("list", "--json")]

    assert [one["id"] for one in objects] == ["task-0", "task-1", "task-2"]
    assert objects == [task.facts() for task in app.delayq.tasks()]
    assert all(one["cursor"] for one in objects)


@pytest.mark.parametrize("value", ["-1", "x", "1.5"])
def test_a_wrong_limit_is_an_error_of_usage(run, value):
    assert run("list", "-n", value).exit_code == 2


def test_a_list_goes_on_behind_a_cursor(three, printed):
    cursor = json.loads(printed("list", "--json", "-n", "1")[0])["cursor"]
    assert ids(printed("list", "--cursor", cursor)) == ["task-1", "task-2"]
    assert ids(printed("list", "--cursor", cursor, "-n", "1")) == ["task-1"]


def test_a_wrong_cursor_is_a_sentence(three, misused, run):
    line = misused("list", "--cursor", "x")
    assert line == "Error: cursor is 'x'; expected the cursor of a task in a list of this store"
    assert run("list", "--cursor", "x", "--queue", "q").exit_code == 2


def test_the_newest_come_first_if_asked_for_and_a_cursor_goes_on_in_that_direction(three, printed):
    newest = ["list", "--newest-first", "--ids"]
    assert printed(*newest) == ["task-2", "task-1", "task-0"]
    assert printed(*newest, "--queue", "q", "--queue", "qq", "-n", "1") == ["task-1"]
    assert printed(*newest, "--state", "scheduled", "-n", "1") == ["task-2"]
    first, *_ = printed("list", "--json", "--newest-first")
    assert printed(*newest, "--cursor", json.loads(first)["cursor"]) == ["task-1", "task-0"]


def test_the_number_of_further_tasks_of_a_tag_counts_waiting_ones(app, said):
    at(app.delayq, "dead", "dead", delayq_tags=["x"])
    for number in range(5):
        app.send_task("t", delayq_at=FAR + number, delayq_tags=["x"])

    assert said("list", "--tag", "x", "-n", "2")[-1] == "3 more; --limit ends this list at 2"
    assert said("list", "--ids", "--dead", "--tag", "x") == ["dead"]


@pytest.mark.parametrize("option", [["--cursor", "x"], ["--newest-first"]])
def test_a_list_that_is_not_in_due_order_has_no_cursor_and_no_direction(misused, option):
    line = misused("list", "--dead", *option)
    assert line == f"Error: {option[0]} is for a list in due order."


def test_the_dead_are_listed_with_why(app, redis, said):
    redis.set("broken", "not a list")
    at(app.delayq, "dead", "dead", queue="broken")
    app.send_task("t", task_id="waits", delayq_at=FAR)
    app.send_task("t", task_id="unreadable", queue="broken", delayq_at=LONG_AGO)
    redis.hset(keys_of("unreadable")["records"], "unreadable", "?")
    app.delayq.hand_over()

    head, *rows = said("list", "--dead")

    assert head.split() == ["ID", "DUE", "(UTC)", "IN", "TASK", "ARGS", "QUEUE", "STATE"]
    dead, unreadable = sorted(rows)
    assert re.match(r"dead +2001-09-09 .* ago +t +broken +dead, broken: WRONGTYPE", dead)
    assert re.match(r"unreadable +- +- +dead, record format", unreadable)
    found = {one["id"]: one for one in map(json.loads, said("list", "--dead", "--json"))}
    assert found["dead"]["attempts"] == 8
    assert found["dead"]["reason"].startswith("broken: WRONGTYPE")
    assert found["dead"]["dead_since"] == app.delayq.get("dead").dead_since.isoformat()
    assert said("show", "dead")[0].split() == ["id", "dead"]


def test_a_refused_task_is_listed_with_its_next_try(app, redis, said):
    redis.set("broken", "not a list")
    app.send_task("t", task_id="refused", queue="broken", delayq_at=LONG_AGO)
    app.delayq.hand_over()
    [row] = said("list", "--due-before", "2010-01-01")[1:]
    assert re.search(r" scheduled, next try in \d s, broken: WRONGTYPE", row)
    [task] = app.delayq.tasks()
    assert (task.attempts, task.next_try) == (1, app.delayq.get("refused").next_try)


def test_show_says_key_and_tags(app, said):
    app.send_task("t", task_id="a", delayq_at=FAR, delayq_key="k", delayq_tags=["x", "y"])

    lines = [line.split(maxsplit=1) for line in said("show", "a")]
    assert [line for line in lines if line[0] in ("key", "tags")] == [
        ["key", "k"],
        ["tags", "x, y"],
    ]


def test_show_says_that_a_task_was_handed_over(app, refused):
    app.send_task("t", task_id="a", delayq_at=LONG_AGO)
    app.delayq.hand_over()
    [shown] = refused("show", "a")
    expected = r"task a has been handed over to its queue already, \d+ s ago \(.* UTC\)"
    assert re.fullmatch(expected, shown)


def test_an_entry_that_cannot_be_read_spoils_no_list_and_show_says_why(three, redis, said, refused):
    redis.hset(keys_of("task-1")["records"], "task-1", b"? of another program")
    assert ids(said("list")) == ["task-0", "task-2"]
    [line] = refused("show", "task-1")
    assert line.startswith("Error: ")
    assert "record format" in line
