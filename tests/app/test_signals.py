"""Celery's signals: handlers that listen to `task_revoked` hear of what is cancelled."""

import pytest
from celery import group
from celery.signals import task_revoked

from tests.app.support import FAR, LONG_AGO


@pytest.fixture
def heard():
    told = []

    def listen(**facts):
        told.append(facts)

    task_revoked.connect(listen)
    yield told
    task_revoked.disconnect(listen)


@pytest.mark.parametrize("how", ["cancel", "revoke"])
def test_a_task_that_is_cancelled_is_revoked_as_celery_has_it(app, add, delayq, heard, how):
    result = add.s(1, y=2).set(headers={"trace": "x"}).delay_until(FAR)

    (delayq.cancel if how == "cancel" else app.control.revoke)(result.id)

    [told] = heard
    request = told.pop("request")
    told.pop("signal")
    assert told == {"sender": add, "terminated": False, "signum": None, "expired": False}
    assert (request.id, request.task, request.args, request.kwargs) == (
        result.id,
        "add",
        [1],
        {"y": 2},
    )
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


def test_in_protocol_1_too(delayq_app, url, heard):
    app = delayq_app(url, task_protocol=1)

    app.send_task("t", (1,), task_id="a", delayq_at=FAR)
    app.delayq.cancel("a")

    [told] = heard
    assert (told["sender"], told["request"].id, told["request"].args) == ("t", "a", [1])


def test_a_task_that_left_before_is_not_told_of(add, delayq, heard):
    result = add.delay_until(LONG_AGO, 1)
    delayq.hand_over()

    result.cancel()
    delayq.cancel("never was")

    assert heard == []
