"""Commands that take a selection: their questions, output and changes; and `release`."""

import json
import re

import click
import pytest
from celery import chain

from celery_delayq import State
from tests.app.support import FAR, arrive_in_protocol_1, lists
from tests.support.places import at
from tests.support.shards import keys_of, with_one_shard


@pytest.fixture
def tasks(app):
    for task_id in ("a", "b", "c"):
        tags = ["x"] if task_id != "c" else []
        app.send_task(
            "t", task_id=task_id, delayq_at=FAR, delayq_tags=tags, delayq_key=f"k{task_id}"
        )


def waiting(app):
    return "".join(task.id for task in app.delayq.select(all=True))


def waiting_as_before(app):
    return {task.id for task in app.delayq.tasks() if task.due.timestamp() == FAR}


def test_a_cancel_says_of_how_many_the_result_follows(delayq_app, redis_server, url, said):
    app = delayq_app(url, redis_server.url(1))
    for _ in range(2):
        app.send_task("t", delayq_at=FAR)
    assert said("cancel", "--all", "--yes", app=app) == [
        "2 tasks cancelled",
        "2 tasks will have the result REVOKED as soon as a scanner has stored it",
    ]


def dead(app, *ids):
    at(app.delayq, "dead", *ids)


@pytest.mark.parametrize(
    ("line", "sentence", "left"),
    [
        (["cancel", "--tag", "x"], "2 tasks cancelled", {"c"}),
        (["cancel", "--due-from", str(FAR), "--due-before", "2100-01-01T00:00:01Z"],
         "3 tasks cancelled", set()),
        (["reschedule", "--tag", "x", str(FAR + 9)], "2 tasks rescheduled", {"c"}),
        (["run-now", "--tag", "x"], "2 tasks made due now", {"c"}),
    ],
)  # fmt: skip
def test_a_selection_is_changed_where_yes_is_said(app, tasks, said, refused, line, sentence, left):  # noqa: PLR0917
    [asked] = refused(*line)
    assert asked.endswith(" There is no terminal to confirm; pass --yes")
    assert waiting_as_before(app) == {"a", "b", "c"}

    assert said(*line, "--yes") == [sentence]

    assert waiting_as_before(app) == left
    assert "c" in left or not app.delayq.counts().scheduled


@pytest.mark.parametrize(
    ("line", "done"),
    [
        ("cancel --due-before 2026-01-01", "cancelled"),
        ("reschedule --tag none +1h", "rescheduled"),
        ("run-now --tag none", "made due now"),
        ("retry --dead", "made due now"),
        ("remove --dead", "removed"),
        ("release --queue none", "released"),
    ],
)
def test_a_change_of_no_task_does_not_ask(app, tasks, said, line, done):
    assert said(*line.split())[0] == f"0 tasks {done}"
    assert waiting(app) == "abc"


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("--queue mial", "this app knows no queue 'mial', and nothing waits for it\n"),
        ("--task unlike.all", "this app knows no task 'unlike.all', and none waits\n"),
        ("--queue celery --tag none", ""),
        ("--task t --dead", ""),
    ],
)
def test_a_selection_by_an_unknown_name_that_finds_none_has_a_note(app, tasks, run, name, note):
    for answer in ("--dry-run", "--yes"):
        result = run("cancel", *name.split(), answer)
        assert result.stdout.startswith("0 tasks ")
        assert (result.stderr, result.exit_code) == (note, 0)


@pytest.mark.parametrize("others", [[], ["a", "b", "c"]], ids=["alone", "beside others"])
def test_a_task_being_published_is_reported_with_status_1(app, refused, others):
    at(app.delayq, "leased", "d")
    for task_id in others:
        app.send_task("t", task_id=task_id, delayq_at=FAR)

    assert refused("cancel", "--all", *(["--yes"] if others else [])) == [
        f"{len(others)} tasks cancelled",
        "1 being published this moment; try again shortly",
    ]


@pytest.mark.parametrize(("answer", "left"), [(True, "c"), (False, "abc")])
@pytest.mark.usefixtures("on_a_terminal")
def test_on_a_terminal_it_asks(app, tasks, run, monkeypatch, answer, left):  # noqa: PLR0917
    def confirm(question, abort):
        assert (question, abort) == ("cancel 2 tasks?", True)
        if not answer:
            raise click.Abort

    monkeypatch.setattr(click, "confirm", confirm)
    result = run("cancel", "--tag", "x")
    assert result.exit_code == (not answer)
    assert waiting(app) == left


THEN = "Sat 2 Jan 2100, 09:00 UTC, in DAYS d"


@pytest.mark.parametrize(
    ("line", "said_so"),
    [
        ("reschedule --task t 2100-01-02T09:00", f"3 tasks would be rescheduled to {THEN}"),
        (
            "reschedule --task t --only earlier 2100-01-02T09:00",
            f"0 tasks would be rescheduled to {THEN}",
        ),
        ("remove --tag x", "0 tasks would be removed"),
    ],
)
def test_a_dry_run_says_how_many_and_changes_nothing(app, tasks, said, line, said_so):
    [sentence] = said(*line.split(), "--dry-run")
    assert re.sub(r"in [\d,]+ d( \d+ h)?", "in DAYS d", sentence) == said_so
    assert waiting_as_before(app) == {"a", "b", "c"}


def test_a_task_is_named_by_its_key(app, tasks, said, refused):
    assert said("reschedule", "--key", "ka", str(FAR)) == [
        "task ka rescheduled to 2100-01-01 00:00:00 UTC"
    ]
    assert said("run-now", "a", "--key", "kb") == ["task a made due now", "task kb made due now"]
    assert said("cancel", "--key", "ka", "--key", "kb") == [
        "task ka cancelled",
        "task kb cancelled",
    ]
    assert re.match(
        r"task ka has been cancelled already, \d+ s ago", refused("cancel", "--key", "ka")[-1]
    )
    assert waiting(app) == "c"


@with_one_shard
def test_dead_tasks_are_retried_or_removed(app, tasks, said, refused):
    dead(app, "d", "e", "f")
    assert refused("retry", "a")[-1].endswith("task a is not dead; nothing was changed")
    assert said("retry", "d") == ["task d made due now"]
    assert said("remove", "e") == ["task e removed"]
    assert said("remove", "--state", "dead", "--yes") == ["1 task removed"]
    assert app.delayq.state("d") is State.SCHEDULED
    assert waiting(app) == "abcd"


BOTH = "Error: Name tasks by id or --key, or select some, not both."
NONE = "Error: Name tasks by id or --key, or select some, as by --tag, or --all."


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (["cancel", "a", "--all"], BOTH),
        (["cancel", "--key", "ka", "--tag", "x"], BOTH),
        (["retry", "--key", "ka", "--all"], BOTH),
        (["cancel"], NONE),
        (["cancel", "a", "--dry-run"], ""),
        (["cancel", "--state", "gone"], ""),
        (["reschedule", "--tag", "x"], ""),
    ],
    ids=str,
)
def test_a_command_needs_its_tasks_named_in_exactly_one_way(app, tasks, misused, line, sentence):
    said = misused(*line)
    assert said == (sentence or said)
    assert waiting(app) == "abc"


def test_a_rate_that_cannot_be_is_wrong_usage(app, misused):
    app.delayq.pause(queue="mail")
    expected = "expected a number of tasks a second from 0.001 to 1000000"
    assert misused("resume", "--queue", "mail", "--rate", "0").endswith(expected)
    assert misused("pause", "--queue", "") == (
        "Error: queue is ''; expected a name of 1 to 512 bytes"
    )


@pytest.mark.parametrize(
    ("line", "done"),
    [
        ("retry", "made due now"),
        ("run-now", "made due now"),
        ("reschedule by:+1h", "rescheduled"),
        ("cancel", "cancelled"),
    ],
)
def test_a_task_of_a_selection_that_cannot_be_read_is_counted_with_status_1(
    app, redis, refused, line, done
):
    dead(app, "a", "b")
    redis.hset(keys_of("a")["records"], "a", "9")
    command, *more = line.split()
    assert refused(command, "--state", "dead", "--yes", *more) == [
        f"1 task {done}", "1 task cannot be read, and stays",
    ]  # fmt: skip


# ``celery delayq release``: its question, its output, and the tasks it sends or leaves.


BEYOND = (
    "2 due later than the broker's visibility_timeout (3600 s): the broker delivers "
    "them again before that; set a longer one in all workers, or they run more than once"
)


@pytest.fixture
def near_and_far(app):
    for task_id, after in (("a", 60), ("b", 7200), ("c", 7200)):
        tags = ["x"] if task_id != "c" else []
        app.send_task("t", task_id=task_id, delayq_after=after, delayq_tags=tags)


def sent(redis):
    return sorted(
        json.loads(one)["headers"]["id"] for waiting in lists(redis).values() for one in waiting
    )


@pytest.mark.parametrize(
    ("line", "ids"),
    [(["--all"], ["a", "b", "c"]), (["--tag", "x", "--due-before", str(FAR)], ["a", "b"])],
    ids=" ".join,
)
def test_release_sends_the_selected_tasks_itself(app, near_and_far, said, redis, line, ids):  # noqa: PLR0917
    assert said("release", *line, "--yes")[-1] == f"{len(ids)} tasks released"
    assert sent(redis) == ids
    assert app.delayq.counts().scheduled == 3 - len(ids)


def test_a_dry_run_or_a_missing_yes_releases_nothing(app, near_and_far, said, refused, redis):
    assert said("release", "--all", "--dry-run") == [BEYOND, "3 tasks would be released"]
    assert refused("release", "--all")[-1] == (
        "Error: release 3 tasks? There is no terminal to confirm; pass --yes"
    )
    assert app.delayq.counts().scheduled == 3
    assert sent(redis) == []


def test_on_rabbitmq_it_says_which_workers_would_end(delayq_app, url, said):
    app = delayq_app("amqp://guest@127.0.0.1:1//", delayq_url=url)
    for minutes in (25, 35, 90):
        app.send_task("t", delayq_after=60 * minutes)
    beyond, would = said("release", "--all", "--dry-run", app=app)
    assert beyond == (
        "2 due later than RabbitMQ's default consumer_timeout (1800 s): a worker that holds a "
        "task longer than your broker's ends with PRECONDITION_FAILED; set a longer one there"
    )
    assert would == "3 tasks would be released"


@pytest.mark.parametrize(
    ("place", "lines"),
    [
        ("dead", ["1 dead task stays: retry or remove them", "0 tasks released"]),
        ("leased", ["0 tasks released", "1 being published this moment; try again shortly"]),
        ("unreadable", ["0 tasks released", "1 task cannot be read, and stays"]),
    ],
)
def test_a_task_that_stays_is_told_with_status_1(delayq_app, url, refused, place, lines):
    app = delayq_app(url, accept_content=["json"])
    if place == "unreadable":
        arrive_in_protocol_1(app, serializer="pickle", delayq_at=FAR)
    else:
        at(app.delayq, place, "d")
    assert refused("release", "--all", "--yes", app=app) == lines


def test_a_canvas_goes_where_that_is_said(app, near_and_far, said, refused, redis):
    chain(app.signature("t"), app.signature("t")).delay_until(FAR)
    for line in (["--dry-run"], ["--yes"], []):
        [sentence] = refused("release", "--all", *line)
        assert sentence == (
            "Error: canvas is False; expected True: only a worker with celery_delayq can run a "
            "canvas, and there is 1"
        )
    assert sent(redis) == []
    assert said("release", "--all", "--yes", "--canvas")[-1] == "4 tasks released"
    assert len(sent(redis)) == 4


def test_while_the_broker_is_away_it_is_said_again_later(delayq_app, url, refused, redis):
    app = delayq_app("redis://127.0.0.1:1/0", delayq_url=url)
    app.send_task("t", task_id="a", delayq_at=FAR)
    for count in ("1 task", "0 tasks"):
        [line] = refused("release", "--all", "--yes", app=app)
        assert line.startswith(f"Error: {count} released, but not sent yet: the broker cannot be")
        assert line.endswith("; a scanner sends them, or run this command again")


@with_one_shard
def test_release_says_how_far_it_has_come(app, said, limits, near_and_far):
    limits(release_tells_s=0.0, release_step=2)
    assert said("release", "--all", "--yes") == [
        "2 tasks released so far",
        "3 tasks released so far",
        BEYOND,
        "3 tasks released",
    ]


@pytest.mark.parametrize("line", [[], ["a"], ["--key", "k"]])
def test_release_takes_a_selection_and_no_ids_or_keys(app, near_and_far, run, redis, line):
    assert run("release", *line, "--yes").exit_code == 2
    assert sent(redis) == []


def test_a_task_released_before_is_sent_if_there_is_nothing_left_to_confirm(app, redis, said):
    app.send_task("t", task_id="a", delayq_at=FAR)
    app.delayq.select(all=True).release()
    assert redis.llen("celery") == 0

    assert said("release", "--all")[-1] == "0 tasks released"

    assert redis.llen("celery") == 1
