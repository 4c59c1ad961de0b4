"""Celery's signals: cancelled tasks send `task_revoked`; a cancelled retry stays REVOKED."""

import pytest
from celery import group
from celery.app.trace import build_tracer
from celery.signals import task_revoked

from tests.app.support import FAR, LONG_AGO

pytestmark = pytest.mark.libraries


@pytest.fixture
def heard(listen):
    told = []
    listen(task_revoked, lambda **facts: told.append(facts))
    return told


@pytest.mark.parametrize("how", ["cancel", "revoke"])
def test_a_task_that_is_cancelled_is_revoked_as_celery_has_it(app, add, delayq, heard, how):
    result = add.s(1, y=2).set(headers={"trace": "x"}).delay_until(FAR)

    (delayq.cancel if how == "cancel" else app.control.revoke)(result.id)

    [told] = heard
    request = told.pop("request")
    told.pop("signal")
    assert told == {"sender": add, "terminated": False, "signum": None, "expired": False}
    assert (request.id, request.task) == (result.id, "add")
    assert (request.args, request.kwargs) == ([1], {"y": 2})
    assert request.headers["trace"] == "x"


def test_a_canvas_is_told_once_and_a_task_that_only_its_name_is_known_of_by_it(app, add, heard):
    app.send_task("elsewhere", task_id="a", delayq_at=FAR)
    app.delayq.cancel("a")
    group(add.s(1), add.s(2)).delay_until(FAR).cancel()

    assert heard[0]["sender"] == "elsewhere"
    assert heard[1]["sender"].name == "celery_delayq.launch"
    assert len(heard) == 2


def test_arguments_that_the_app_does_not_accept_stay_unread(delayq_app, url, heard):
    app = delayq_app(url, accept_content=["json"])

    app.send_task("t", (1,), task_id="a", serializer="pickle", delayq_at=FAR)
    app.delayq.cancel("a")

    assert [(facts["request"].id, facts["request"].args) for facts in heard] == [("a", None)]


def test_a_task_that_left_before_is_not_told_of(add, delayq, heard):
    result = add.delay_until(LONG_AGO, 1)
    delayq.hand_over()

    result.cancel()
    delayq.cancel("never was")

    assert heard == []


@pytest.fixture
def retrying(app_with_results, monkeypatch):
    """Run a task that retries, as a worker does; ``meanwhile()`` just before it stores RETRY."""
    app = app_with_results
    app.conf.delayq_capture_eta = True

    @app.task(name="retrying", bind=True, shared=False)
    def task(self, countdown):
        raise self.retry(countdown=countdown)

    def run(meanwhile, countdown=3600, **request):
        plain = app.backend.mark_as_retry

        def mark_as_retry(*args, **options):
            meanwhile(app.delayq)
            return plain(*args, **options)

        monkeypatch.setattr(app.backend, "mark_as_retry", mark_as_retry)
        build_tracer(task.name, task, app=app)("a", (countdown,), {}, {"id": "a", **request})
        return app.AsyncResult("a")

    return run


def schedule_anew(delayq):
    assert delayq.cancel("a")
    delayq.app.send_task("retrying", (1,), task_id="a", delayq_at=FAR)


MEANWHILE = {
    "cancelled": (lambda delayq: delayq.cancel("a"), "REVOKED"),
    "waiting": (lambda delayq: delayq.reschedule("a", by=60), "RETRY"),
    "scheduled anew": (schedule_anew, "RETRY"),
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_a_retry_is_revoked_if_it_is_cancelled_when_the_worker_stores_its_state(retrying, what):
    step, state = MEANWHILE[what]

    assert retrying(step).state == state


def test_a_retry_that_celery_sends_has_nothing_to_do_with_an_earlier_cancel(
    app_with_results, retrying
):
    app_with_results.send_task("retrying", (1,), task_id="a", delayq_at=FAR)
    assert app_with_results.delayq.cancel("a")

    result = retrying(lambda _: None, countdown=0)

    assert result.state == "RETRY"


def test_a_cancelled_retry_is_counted_once_by_its_chord(app_with_results, retrying, monkeypatch):
    counted = []
    monkeypatch.setattr(
        app_with_results.backend,
        "on_chord_part_return",
        lambda request, *_, **__: counted.append(request.id),
    )

    result = retrying(
        lambda delayq: delayq.cancel("a"), chord={"task": "body", "options": {}}, group="g"
    )

    assert result.state == "REVOKED"
    assert counted == ["a"]
