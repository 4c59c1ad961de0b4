"""``celery delayq release``: its question, its output, and the tasks it sends or leaves."""

import json

import pytest
from celery import chain

from tests.app.support import FAR, arrive_in_protocol_1, lists
from tests.support.places import at

BEYOND = (
    "2 due later than the broker's visibility_timeout (3600 s): the broker delivers "
    "them again before that; set a longer one in all workers, or they run more than once"
)


@pytest.fixture
def tasks(app):
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
def test_release_sends_the_selected_tasks_itself(app, tasks, said, redis, line, ids):  # noqa: PLR0917
    assert said("release", *line, "--yes")[-1] == f"{len(ids)} tasks released"
    assert sent(redis) == ids
    assert app.delayq.counts().scheduled == 3 - len(ids)


def test_a_dry_run_or_a_missing_yes_releases_nothing(app, tasks, said, refused, redis):
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


def test_a_canvas_goes_where_that_is_said(app, tasks, said, refused, redis):
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


def test_release_says_how_far_it_has_come(app, said, limits, tasks):
    limits(release_tells_s=0.0, release_step=2)
    assert said("release", "--all", "--yes") == [
        "2 tasks released so far",
        "3 tasks released so far",
        BEYOND,
        "3 tasks released",
    ]


@pytest.mark.parametrize("line", [[], ["a"], ["--key", "k"]])
def test_release_takes_a_selection_and_no_ids_or_keys(app, tasks, run, redis, line):
    assert run("release", *line, "--yes").exit_code == 2
    assert sent(redis) == []


def test_a_task_released_before_is_sent_if_there_is_nothing_left_to_confirm(app, redis, said):
    app.send_task("t", task_id="a", delayq_at=FAR)
    app.delayq.select(all=True).release()
    assert redis.llen("celery") == 0

    assert said("release", "--all")[-1] == "0 tasks released"

    assert redis.llen("celery") == 1
