"""`delayq health`: exit status 1 and a sentence for each thing that is wrong."""

import json
import re

import pytest

from tests.app.support import FAR, LONG_AGO
from tests.app.test_health import NOBODY
from tests.cli.conftest import MODULE
from tests.support.places import at
from tests.support.ports import free_port


def test_health_prints_one_word_if_all_is_well(app, alive, said):
    alive(app)
    app.send_task("t", delayq_at=FAR)
    assert said("health") == ["healthy"]
    assert said("health", "--here") == ["healthy"]
    assert json.loads(said("health", "--json")[0]) == {
        "healthy": True,
        "problems": [],
        "paused": [],
        "notes": [],
    }


def test_health_without_a_scanner_ends_with_status_1(app, refused):
    assert refused("health") == [NOBODY]
    assert refused("health", "--here")[0].startswith("no scanner on this host, ")
    assert json.loads(refused("health", "--json")[0]) == {
        "healthy": False,
        "problems": [NOBODY],
        "paused": [],
        "notes": [],
    }


def test_a_pause_is_told_at_once_and_becomes_a_problem_after_max_paused(app, alive, said, refused):
    alive(app)
    for _ in range(20):
        app.send_task("t", delayq_at=LONG_AGO)
    app.delayq.pause(all=True)
    begins = r"everything is paused since [\d-]+ [\d:]+ UTC: 20 tasks are due and not delivered, "
    ends = rf"; to resume: celery -A {MODULE} delayq resume --all"

    [line] = said("health")
    assert re.fullmatch(rf"{begins}the first for [^,;]+{ends}", line)
    told = json.loads(said("health", "--json")[0])
    assert (told["healthy"], told["problems"], len(told["paused"])) == (True, [], 1)
    [line] = refused("health", "--max-paused", "0")
    assert re.fullmatch(rf"{begins}the first for [^,;]+, and 0 s are allowed{ends}", line)


def test_an_option_says_how_long_a_task_may_be_overdue(app, alive, said, refused):
    alive(app)
    app.send_task("t", delayq_at=LONG_AGO)
    [line] = refused("health", "--max-overdue", "0.5")
    assert line.endswith("; 0.5 s are allowed")
    assert said("health", "--max-overdue", "1e10") == ["healthy"]


def test_an_option_says_how_many_tasks_may_be_dead(app, alive, said, refused):
    alive(app)
    at(app.delayq, "dead")
    assert refused("health") == ["1 task is dead; 0 are allowed"]
    assert said("health", "--max-dead", "1") == ["healthy"]


@pytest.mark.parametrize("bound", ["overdue -1", "dead 0.5"])
def test_a_bound_that_is_none_is_an_error(run, bound):
    result = run("health", *f"--max-{bound}".split())
    assert result.exit_code in (1, 2)
    assert "Error: " in result.output
    assert "Traceback" not in result.output


def test_a_store_that_is_away_is_a_problem_of_health_in_json_too(delayq_app, refused):
    app = delayq_app(f"redis://127.0.0.1:{free_port()}/0")
    [sentence] = refused("health", app=app)
    [told] = refused("health", "--json", app=app)
    assert sentence.startswith("the store ")
    assert "failed" not in sentence
    assert json.loads(told)["problems"] == [sentence]
