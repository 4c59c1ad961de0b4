"""Celery's own `revoke` reaches scheduled tasks, with every worker offline."""

from types import SimpleNamespace

import pytest
from celery.result import AsyncResult
from celery.worker import state as worker_state
from celery.worker.control import Panel, revoke, terminate

from celery_delayq import Outcome
from celery_delayq.contrib.control import remote
from tests.app.conftest import app_with_results as app
from tests.app.support import FAR, LONG_AGO
from tests.support.places import at

__all__ = ["app"]

pytestmark = pytest.mark.libraries


@pytest.mark.parametrize(
    "revoke",
    [
        lambda app, result: app.control.revoke(result.id),
        lambda app, result: app.control.revoke([result.id]),
        lambda app, result: app.control.revoke((result.id,)),
        lambda app, result: app.control.revoke({result.id}),
        lambda app, result: app.control.terminate(result.id),
        lambda _, result: result.revoke(),
        lambda app, result: AsyncResult(result.id, app=app).revoke(),
    ],
    ids=["id", "list", "tuple", "set", "terminate", "result", "Celery's result"],
)
def test_a_revoke_cancels_and_tells_no_worker_also_when_repeated(
    app, add, delayq, to_workers, revoke
):
    result = add.delay_until(FAR, 1)

    for _ in range(2):
        revoke(app, result)

    assert delayq.get(result.id) is None
    assert result.state == "REVOKED"
    assert result.cancel() is Outcome.NOT_FOUND
    assert to_workers() == []


def test_the_revoke_of_a_list_cancels_waiting_tasks_and_sends_workers_the_rest(
    app, add, delayq, to_workers
):
    waits = [add.delay_until(FAR, number) for number in range(2)]
    left = add.delay_until(LONG_AGO, 3)
    delayq.hand_over()

    app.control.revoke([waits[0].id, left.id, waits[1].id, "nobody"])

    assert delayq.counts().scheduled == 0
    [(method, arguments)] = to_workers()
    assert (method, arguments["task_id"]) == ("revoke", [left.id, "nobody"])


def test_the_revoke_of_a_task_that_has_left_is_celery_s_with_all_of_its_options(
    app, add, delayq, to_workers
):
    result = add.delay_until(LONG_AGO, 1)
    delayq.hand_over()

    app.control.revoke(result.id, terminate=True, signal="SIGKILL")

    options = {"task_id": result.id, "terminate": True, "signal": "SIGKILL"}
    assert to_workers() == [("revoke", options)]


def test_a_task_under_a_lease_is_revoked_at_the_workers(app, delayq, to_workers):
    at(delayq, "leased")

    app.control.revoke("a")

    assert [method for method, _ in to_workers()] == ["revoke"]


def test_an_id_that_this_package_cannot_hold_is_left_to_celery(app, to_workers):
    app.control.revoke("x" * 600)
    app.control.revoke(5)

    assert [arguments["task_id"] for _, arguments in to_workers()] == ["x" * 600, 5]


def test_revoke_by_stamps_is_celery_s(app, add, delayq, to_workers):
    result = add.delay_until(FAR, 1)

    app.control.revoke_by_stamped_headers({"who": "me"})

    assert [method for method, _ in to_workers()] == ["revoke_by_stamped_headers"]
    assert delayq.get(result.id) is not None


@pytest.fixture
def panel(app, monkeypatch):
    """A worker's remote control: it gets ``panel(ids)``, and keeps the ids in ``revoked``."""
    for name, command in (("revoke", revoke), ("terminate", terminate)):
        monkeypatch.setitem(Panel.data, name, command)
    remote.in_worker(None)

    def tell(ids, *, command="revoke", **options):
        state = SimpleNamespace(app=app, consumer=SimpleNamespace())
        return Panel.data[command](state, task_id=ids, **options)

    yield tell
    worker_state.revoked.clear()


def test_of_several_workers_none_remembers_what_one_of_them_has_cancelled(app, add, delayq, panel):
    add.s(1).set(task_id="a").delay_until(FAR)

    answers = [panel("a") for _ in range(3)]

    assert answers == [{"ok": "tasks ['a'] cancelled before they were due"}] * 3
    assert "a" not in worker_state.revoked


def test_a_worker_remembers_what_it_never_heard_of_and_what_was_handed_over(
    app, add, delayq, panel
):
    add.s(1).set(task_id="gone").delay_until(LONG_AGO)
    delayq.hand_over()

    panel(["gone", "never"])

    assert {*worker_state.revoked} == {"gone", "never"}


def test_a_worker_remembers_what_was_cancelled_long_ago(app, add, panel, limits):
    # Another message may have been sent with its id since.
    limits(revoke_lately_ms=0)
    add.s(1).set(task_id="a").delay_until(FAR).cancel()

    panel("a")

    assert "a" in worker_state.revoked


def test_a_worker_that_gets_terminate_cancels_a_waiting_task(add, delayq, panel):
    add.s(1).set(task_id="a").delay_until(FAR)

    answers = [panel([one], command="terminate", signal="TERM") for one in ("a", "b")]

    assert answers == [
        {"ok": "tasks ['a'] cancelled before they were due"},
        {"ok": "terminate: tasks unknown"},  # by the worker; this is Celery's own answer
    ]
    assert delayq.get("a") is None
    assert {*worker_state.revoked} == {"b"}


def test_every_worker_remembers_what_may_have_been_delivered(add, delayq, panel):
    at(delayq, "lapsed")
    assert delayq.cancel("a") is Outcome.UNCERTAIN

    panel("a")

    assert "a" in worker_state.revoked
