"""The terminal finds what a user knows a part of."""

import re

import pytest

from celery_delayq.core.errors import StoreDiffers
from tests.app.support import FAR
from tests.cli import conftest


@pytest.fixture
def tasks(app):
    for number in range(3):
        app.send_task(
            "shop.remind", (f"user-{number}",), task_id=f"order-{number}", queue="mail",
            delayq_at=FAR, delayq_tags=["customer:7"],
        )  # fmt: skip


@pytest.mark.usefixtures("tasks")
def test_the_beginning_of_an_id_shows_the_only_task_that_has_it(app, said, refused):
    app.send_task("t", task_id="bill-0001-x", delayq_at=FAR)

    assert any(line.split() == ["id", "bill-0001-x"] for line in said("show", "bill-00"))
    assert refused("show", "order-") == [
        "the ids of more than one task begin with 'order-':", "order-0", "order-1", "order-2",
    ]  # fmt: skip
    assert refused("show", "bill-")[0].startswith("task bill- is not scheduled")
    assert "order-9" in refused("show", "order-9")[0]


@pytest.mark.usefixtures("tasks")
def test_a_list_of_tasks_with_a_text_in_their_arguments(printed):
    assert printed("list", "--text", "USER-1", "--ids") == ["order-1"]
    assert printed("list", "--text", "user", "--ids", "-n", "2") == ["order-0", "order-1"]


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize(
    ("option", "value", "meant"),
    [
        ("--task", "remind", "shop.remind"),
        ("--queue", "maill", "mail"),
        ("--tag", "customer", "customer:7"),
    ],
)
def test_a_name_that_matches_nothing_may_mean_another(run, option, value, meant):
    result = run("list", option, value)
    # Tasks of other tests' modules may be alike, too.
    assert re.search(rf"did you mean .*\b{meant}\b.*\?", result.stderr)


def test_advice_in_an_error_names_the_app_that_was_typed(app, run, monkeypatch):
    def differs(*_):
        raise StoreDiffers("delayq_shards", "1", "3")

    monkeypatch.setattr(type(app.delayq.services.entries), "find", differs)
    monkeypatch.setattr(conftest, "MODULE", "shop")

    assert "run: celery -A shop delayq reshard 3" in run("show", "a").output
