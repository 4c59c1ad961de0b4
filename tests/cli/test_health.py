"""`delayq health`: exit status 1 and a sentence for each thing that is wrong."""

import json
from contextlib import closing

import pytest

from tests.app.support import FAR, LONG_AGO, hand_over_until_dead
from tests.app.test_health import NOBODY
from tests.app.test_status import give_another_layout
from tests.support.ports import free_port


@pytest.fixture
def alive(app):
    """A scanner that is alive, and does nothing."""
    app.conf.delayq_safety_interval = 300  # it counts as alive for three times as long
    with closing(app.delayq.services.steps_by_shard()[0]) as shard_steps:
        shard_steps.hand_over()
        yield shard_steps


def test_health_prints_one_word_if_all_is_well(app, alive, said):
    app.send_task("t", delayq_at=FAR)

    assert said("health") == ["healthy"]
    assert said("health", "--here") == ["healthy"]
    assert json.loads(said("health", "--json")[0]) == {"healthy": True, "problems": []}


def test_without_a_scanner_it_ends_with_status_1(app, refused):
    assert refused("health") == [NOBODY]
    assert refused("health", "--here")[0].startswith("no scanner on this host, ")
    assert json.loads(refused("health", "--json")[0]) == {"healthy": False, "problems": [NOBODY]}


def test_an_option_says_how_long_a_task_may_be_overdue(app, alive, said, refused):
    app.send_task("t", delayq_at=LONG_AGO)

    [line] = refused("health", "--max-overdue", "0.5")

    assert line.endswith("; 0.5 s are allowed")
    assert said("health", "--max-overdue", "1e10") == ["healthy"]


def test_an_option_says_how_many_tasks_may_be_dead(app, redis, alive, said, refused):
    redis.set("broken", "not a list")
    app.send_task("t", queue="broken", delayq_at=LONG_AGO)
    hand_over_until_dead(app.delayq, redis)

    assert refused("health") == ["1 task is dead; 0 are allowed"]
    assert said("health", "--max-dead", "1") == ["healthy"]


def test_a_redis_that_is_away_is_a_problem_and_json_as_any_other(delayq_app, refused):
    app = delayq_app(f"redis://127.0.0.1:{free_port()}/0")

    [line] = refused("health", "--json", app=app)

    assert "refused" in json.loads(line)["problems"][0]


@pytest.mark.parametrize(
    "bound",
    [
        ("--max-overdue", "-1"), ("--max-overdue", "nan"), ("--max-overdue", "inf"),
        ("--max-dead", "-1"), ("--max-dead", "0.5"),
    ],
)  # fmt: skip
def test_a_bound_that_is_none_is_an_error(run, bound):
    result = run("health", *bound)

    assert result.exit_code in (1, 2)
    assert "Error: " in result.output
    assert "Traceback" not in result.output


each_reading_command = pytest.mark.parametrize(
    "line",
    [
        ("status",), ("status", "--json"), ("list",), ("list", "--json"), ("list", "--dead"),
        ("show", "a"), ("history",), ("check",),
    ],
    ids=" ".join,
)  # fmt: skip


@each_reading_command
def test_a_command_that_cannot_read_the_store_says_so_in_plain_words(delayq_app, refused, line):
    app = delayq_app(f"redis://127.0.0.1:{free_port()}/0")

    *_, sentence = refused(*line, app=app)

    step = "check" if line == ("check",) else "read"
    assert sentence.startswith(f"Error: {step} failed: ")


def test_nor_does_health_name_a_step(delayq_app, refused):
    app = delayq_app(f"redis://127.0.0.1:{free_port()}/0")

    [sentence] = refused("health", app=app)

    assert "failed" not in sentence
    assert "refused" in sentence


@each_reading_command
def test_a_command_shows_no_store_of_another_layout_as_an_empty_one(redis, url, refused, line):
    give_another_layout(redis)

    *_, sentence = refused(*line)

    assert sentence.startswith("Error: the store has layout '2', this process '1'")


def test_so_does_health(redis, url, refused):
    give_another_layout(redis)

    [sentence] = refused("health")

    assert sentence.startswith("the store has layout '2', this process '1'")
