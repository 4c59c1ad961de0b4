"""A task and an outcome as plain values: for JSON, for FastAPI, for comparisons."""

import copy
import dataclasses
import json
import pickle

import pytest
from pydantic import TypeAdapter

from celery_delayq import Outcome, State
from tests.app.support import FAR
from tests.app.test_reading import Mark
from tests.support.places import at

pytestmark = pytest.mark.core


@pytest.fixture
def task(app, delayq):
    app.send_task("t", (1,), {"y": [2]}, task_id="a", delayq_at=FAR, priority=3, queue="mail")
    return delayq.get("a")


def test_the_facts_of_a_task_are_json_values(task):
    facts = task.facts()

    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert (facts["id"], facts["task"], facts["queue"]) == ("a", "t", "mail")
    assert (facts["args"], facts["kwargs"], facts["priority"]) == ([1], {"y": [2]}, 3)
    assert (facts["due"], facts["state"]) == ("2100-01-01T00:00:00+00:00", "SCHEDULED")
    assert not facts.keys() & {"tags", "key", "error", "put_offs", "argsrepr", "kwargsrepr"}


def test_the_facts_of_a_task_and_its_copy_unpickle_nothing_and_show_nothing_hidden(
    delayq_app, url, tmp_path
):
    app, mark = delayq_app(url, accept_content=["pickle", "json"]), tmp_path / "mark"
    app.send_task("t", (Mark(mark),), task_id="a", serializer="pickle", delayq_at=FAR)
    app.send_task("t", ("s3cret",), task_id="b", argsrepr="***", delayq_at=FAR)

    pickled, hidden = (app.delayq.get(one).facts() for one in "ab")

    assert copy.copy(app.delayq.get("a")).args is None
    assert not mark.exists()
    assert (pickled["args"], hidden["args"], hidden["argsrepr"]) == (None, None, "***")
    assert "s3cret" not in json.dumps(hidden)


def test_the_facts_of_a_dead_task_say_why(app, delayq):
    at(delayq, "dead", queue="celery")
    [dead] = delayq.select(state="DEAD")

    assert dead.facts()["reason"].startswith("celery")
    assert json.dumps(dead.facts())


def test_a_task_as_a_dictionary_has_no_app_and_no_message(task):
    values = dataclasses.asdict(task)

    assert [name for name in values if name.startswith("_")] == []
    assert values["id"] == "a"
    assert values["cursor"] == ""
    assert json.dumps(values, default=str)
    assert dataclasses.asdict(dataclasses.replace(task, queue="x"))["queue"] == "x"
    assert "Celery" not in repr(task)


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda task: pickle.loads(pickle.dumps(task))]
)
def test_a_copy_is_equal_and_has_no_app_and_so_no_password(app, delayq, task, copied):
    app.conf.a_secret = "s3cret"
    app.send_task("t", ("hidden",), task_id="b", argsrepr="***", delayq_at=FAR)
    hidden = copied(delayq.get("b"))

    assert b"s3cret" not in pickle.dumps(task)
    assert (copied(task), copied(task).args, copied(task).facts()) == (task, (1,), task.facts())
    assert (hidden.facts()["args"], hidden.args) == (None, ("hidden",))


def test_pydantic_and_so_fastapi_show_the_same(task):
    adapter = TypeAdapter(type(task))

    shown = json.loads(adapter.dump_json(task))

    assert shown.keys() == dataclasses.asdict(task).keys()
    assert adapter.validate_python(task) == task


@pytest.mark.parametrize("outcome", Outcome)
def test_an_outcome_is_its_text_and_only_done_is_true(outcome):
    assert outcome == outcome.value
    assert json.dumps({"outcome": outcome}) == f'{{"outcome": "{outcome.value}"}}'
    assert f"{outcome}" == str(outcome) == f"Outcome.{outcome.name}"
    assert {outcome.value: 1}[outcome] == 1
    assert bool(outcome) is (outcome is Outcome.DONE)
    assert outcome != outcome.name


def test_a_task_s_state_is_text_too(task):
    assert json.dumps(task.state) == '"SCHEDULED"'
    assert task.state is State.SCHEDULED
