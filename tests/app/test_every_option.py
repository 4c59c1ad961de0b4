"""Each option of Celery's calls is tried in a scheduled one; one that Celery adds is noticed."""

import inspect
from datetime import timezone

import pytest
from celery import Celery
from celery.app.amqp import AMQP
from celery.app.task import Task
from kombu import Producer

from celery_delayq.errors import InvalidOption
from tests.app.options_of_celery import IN_MESSAGE, described
from tests.app.support import lists
from tests.app.test_contract_messages import OPTIONS, OWN

pytestmark = pytest.mark.libraries

REFUSED = {"immediate": True, "event_dispatcher": object()}


def options_of(app):
    """The options that a call may have, by the functions of Celery and kombu that take them."""
    sender = AMQP(app)._create_task_sender()
    functions = (Task.apply_async, Celery.send_task, AMQP.as_task_v2, sender, Producer.publish)
    return {
        name
        for function in functions
        for name, one in inspect.signature(function).parameters.items()
        if one.kind is not one.VAR_KEYWORD
    } - {"self", "message"}


def test_each_option_that_celery_has_is_described(app):
    unknown = options_of(app) - described().keys()

    assert not unknown, (
        f"Celery or kombu takes new options: {unknown}. Schedule a call with each on Redis and on "
        "RabbitMQ, beside a plain call. If it is in the message, add it to OPTIONS of "
        "test_contract_messages.py; if it is dropped, leave captured calls to Celery and refuse "
        "others (_OF_PUBLISHING in intercept.py). Then describe it in options_of_celery.py."
    )


def test_each_option_that_a_message_has_is_compared_with_celery_s():
    in_message = {name for name, said in described().items() if said == IN_MESSAGE}
    compared = {name for options in OPTIONS.values() for name in options}
    # Compared with values that differ in each call, or elsewhere.
    elsewhere = {"args", "kwargs", "task_id", "serializer", "compression", "correlation_id"}

    assert in_message <= compared | elsewhere
    assert OWN  # headers, ids and texts that no other call has


@pytest.mark.parametrize("name", REFUSED)
def test_an_option_of_publishing_leaves_a_captured_call_to_celery(delayq_app, url, redis, name):
    app = delayq_app(url, delayq_capture_eta=True)

    app.send_task("t", countdown=3000, **{name: REFUSED[name]})

    assert (app.delayq.counts().scheduled, len(lists(redis)[b"celery"])) == (0, 1)


@pytest.mark.parametrize("name", REFUSED)
def test_an_option_of_publishing_is_refused_in_a_scheduled_call(app, delayq, name):
    with pytest.raises(InvalidOption, match=f"^{name} is .*; expected none: the call publishes no"):
        app.send_task("t", delayq_after=3000, **{name: REFUSED[name]})

    assert delayq.counts().scheduled == 0


def test_the_timezone_of_a_countdown_is_taken_and_is_in_no_message(app, delayq, redis):
    app.send_task("t", delayq_after=0, timezone=timezone.utc)

    delayq.hand_over()

    (message,) = lists(redis)[b"celery"]
    assert b"timezone" not in message


def test_entities_that_a_call_declares_exist_once_it_is_delivered(app, delayq, redis):
    app.send_task("t", delayq_after=0, **OPTIONS["declared"])

    delayq.hand_over()

    assert redis.exists("_kombu.binding.of-audits")
    assert len(lists(redis)[b"celery"]) == 1
