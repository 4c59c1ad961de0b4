"""Messages that a program makes and sends through `app.amqp`, arguments by position or name."""

import pytest
from celery.app.task import Context
from dateutil.parser import isoparse

from celery_delayq.errors import InvalidOption
from tests.app.support import FAR, LONG_AGO, comparable, lists

pytestmark = pytest.mark.libraries

BY_PLACE = ("a", "t", (1,), {"x": 2}, None, None, None, None, 60)
BY_NAME = {"task_id": "a", "name": "t", "args": (1,), "kwargs": {"x": 2}, "expires": 60}


@pytest.fixture(params=["as_task_v2", "create_task_message"])
def make(request, app):
    return getattr(app.amqp, request.param)


def test_a_message_is_made_of_arguments_by_name_as_of_those_by_place(app, make_app, make):
    more = {"now": app.now(), "origin": "me"}
    by_celery = tuple(make_app().amqp.as_task_v2(**BY_NAME, **more))

    assert tuple(make(**BY_NAME, **more)) == tuple(make(*BY_PLACE, **more)) == by_celery


def test_a_message_of_named_arguments_is_scheduled_and_expires_after_its_due_time(
    app, delayq, make
):
    message = make(**BY_NAME, delayq_at=FAR)

    with app.producer_pool.acquire() as producer:
        app.amqp.send_task_message(producer, "t", message)

    assert isoparse(message.headers["expires"]).timestamp() == FAR + 60
    assert delayq.get("a").due.timestamp() == FAR


def test_named_arguments_that_cannot_be_honoured_are_refused(make):
    with pytest.raises(InvalidOption, match="task_id is 5"):
        make(task_id=5, name="t", delayq_at=FAR)
    with pytest.raises(InvalidOption, match="countdown is 7; expected none beside the time"):
        make(task_id="a", name="t", countdown=7, delayq_at=FAR)


def test_a_running_task_s_options_make_a_message(app):
    request = Context(id="a", root_id="r", args=(1,), kwargs={}, delivery_info={}, headers={})

    message = app.amqp.as_task_v2(name="t", args=(1,), **request.as_execution_options())

    assert (message.headers["id"], message.headers["root_id"]) == ("a", "r")


@pytest.mark.parametrize("options", [{}, {"delayq_at": LONG_AGO}], ids=["sent", "scheduled"])
def test_a_message_is_sent_with_options_by_place_as_with_those_by_name(app, redis, options):
    found = []
    for place, name in (((None, None, "q"), {}), ((), {"queue": "q"})):
        message = app.amqp.as_task_v2("a", "t", reply_to="r", **options)
        with app.producer_pool.acquire() as producer:
            app.amqp.send_task_message(producer, "t", message, *place, **name)
        app.delayq.hand_over()
        found.append({key: [*map(comparable, raw)] for key, raw in lists(redis).items()})
        redis.delete("q")

    assert found[0] == found[1]
    assert [*found[0]] == [b"q"]
