"""The terminal finds what a user knows a part of."""

import re
import shlex

import pytest

from celery_delayq.core.errors import StoreDiffers
from tests.app.support import FAR
from tests.cli import conftest
from tests.support.places import at


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


UUIDS = [f"8b0ce8b4-1f0f-4cd5-9a1c-9d1f7b6f7a5{number}" for number in range(3)]
OTHER = "aaaaaaaa-1f0f-4cd5-9a1c-9d1f7b6f7a53"


@pytest.fixture
def uuids(app):
    for each in (*UUIDS, OTHER):
        app.send_task("t", task_id=each, delayq_at=FAR)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("cancel {}", "cancelled"),
        ("reschedule {} 'tomorrow 9:00'", "rescheduled to .* 09:00:00 UTC"),
        ("reschedule {} 'in 2 h'", "rescheduled to .* UTC"),
        ("run-now {}", "made due now"),
        ("edit {} --priority 3", "edited"),
        ("retry {}", "made due now"),
        ("remove {}", "removed"),
    ],
)
def test_a_change_takes_the_first_8_characters_of_a_uuid(app, uuids, said, line, what):
    if line.startswith(("retry", "remove")):
        app.delayq.cancel(OTHER)
        at(app.delayq, "dead", OTHER, queue="broken")
    [answer] = said(*shlex.split(line.format(OTHER[:8])))
    assert re.fullmatch(f"task {OTHER} {what}", answer)
    assert all(app.delayq.get(each).changed == app.delayq.get(each).created for each in UUIDS)


@pytest.mark.usefixtures("uuids")
def test_of_several_that_begin_so_none_is_changed_and_they_are_listed(app, refused):
    beginning = UUIDS[0][:13]
    several = f"the ids of more than one task begin with {beginning!r}; nothing was changed"
    assert refused("cancel", beginning) == [f"{several}, name one of them:", *UUIDS]
    assert app.delayq.counts().scheduled == 4


@pytest.mark.usefixtures("tasks", "uuids")
@pytest.mark.parametrize("beginning", ["order-", OTHER[:7], "AAAAAAAA", "aaaaaaab"])
def test_a_shorter_beginning_or_that_of_another_id_is_no_task(app, refused, beginning):
    assert refused("cancel", beginning)[0].startswith(f"task {beginning} is not scheduled in ")
    assert app.delayq.counts().scheduled == 7


@pytest.mark.usefixtures("uuids")
def test_a_whole_id_is_that_task_even_if_others_begin_so(app, said):
    app.send_task("t", task_id=OTHER[:8], delayq_at=FAR)
    app.send_task("t", task_id="bbbbbbbb-not-a-uuid", delayq_at=FAR)
    assert said("cancel", OTHER[:8]) == [f"task {OTHER[:8]} cancelled"]
    assert app.delayq.get(OTHER) is not None


def test_an_id_of_another_form_is_always_whole(app, refused):
    app.send_task("t", task_id="20300131-000042", delayq_at=FAR)
    assert refused("cancel", "20300131-00004")[0].startswith("task 20300131-00004 is not scheduled")


@pytest.mark.usefixtures("tasks")
def test_a_list_of_tasks_with_a_text_in_their_arguments(printed):
    assert printed("list", "--text", "USER-1", "--ids") == ["order-1"]
    assert printed("list", "--text", "user", "--ids", "-n", "2") == ["order-0", "order-1"]


@pytest.mark.usefixtures("tasks")
def test_a_tag_that_matches_nothing_may_mean_another(run):
    # Tasks of other tests' modules may be alike, too.
    assert re.search(r"did you mean .*\bcustomer:7\b.*\?", run("list", "--tag", "customer").stderr)


def test_advice_in_an_error_names_the_app_that_was_typed(app, run, monkeypatch):
    def differs(*_):
        raise StoreDiffers("delayq_shards", "1", "3")

    monkeypatch.setattr(type(app.delayq.services.entries), "find", differs)
    monkeypatch.setattr(conftest, "MODULE", "shop")

    assert "run: celery -A shop delayq reshard 3" in run("show", "a").output
