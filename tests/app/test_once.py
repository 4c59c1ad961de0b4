"""The option `delayq_once` becomes a header of the message, whichever way the task is sent."""

import json

import pytest

from celery_delayq.errors import InvalidOption
from tests.app.conftest import app_with_results as app
from tests.app.support import FAR, envelope, only_message, templates
from tests.app.test_adoption import Consumer

__all__ = ["app"]

pytestmark = pytest.mark.libraries


def sent(redis):
    return json.loads(only_message(redis)[1])["headers"]


def test_each_task_of_a_bulk_has_the_option_once(add, delayq):
    items = [((number,), {}) for number in range(5)]
    bulk = delayq.schedule_many(add.s().set(delayq_once=True), items, at=FAR)
    assert [envelope(delayq, one).headers["delayq_once"] for one in bulk.ids] == [True] * 5


def test_calls_of_a_task_with_the_option_share_a_template(add, delayq, redis):
    for number in range(5):
        add.apply_async((number,), delayq_at=FAR, delayq_once=True)
    assert templates(redis)[1] == 4  # with the first, it is unknown whether another one follows


@pytest.mark.parametrize("protocol", [1, 2])
def test_a_task_that_is_sent_at_once_has_the_header_for_its_retries(app, add, redis, protocol):
    app.conf.task_protocol = protocol
    add.apply_async((1,), delayq_once=True)
    assert sent(redis)["delayq_once"] is True


def test_once_in_headers_is_kept_as_a_retry_needs_it_and_an_option_goes_before(add, delayq, redis):
    kept = add.apply_async((1,), headers={"delayq_once": True}, delayq_at=FAR)
    other = add.apply_async((1,), headers={"delayq_once": True}, delayq_at=FAR, delayq_once=False)
    assert envelope(delayq, kept.id).headers["delayq_once"] is True
    assert envelope(delayq, other.id).headers["delayq_once"] is False


@pytest.mark.parametrize("when", [{}, {"delayq_at": FAR}], ids=["at once", "later"])
@pytest.mark.parametrize("value", [1, 0, "yes", "", []], ids=repr)
def test_once_that_is_neither_true_nor_false_is_refused(add, redis, value, when):
    with pytest.raises(InvalidOption) as caught:
        add.apply_async((1,), delayq_once=value, **when)
    assert str(caught.value) == f"delayq_once is {value!r}; expected true or false"
    assert redis.keys() == []


def test_a_stamp_of_the_name_of_once_is_the_user_s_own(add, delayq):
    held = add.apply_async((1,), delayq_at=FAR, delayq_once="x", stamped_headers=["delayq_once"])
    headers = envelope(delayq, held.id).headers
    assert headers["stamps"] == {"delayq_once": "x"}
    assert "delayq_once" not in headers


def test_once_says_nothing_where_tasks_are_always_eager(app, add):
    app.conf.task_always_eager = True
    assert add.apply_async((1, 2), delayq_once=True, delayq_after=60).get() == 3


def test_a_task_from_a_process_without_a_delayq_waits_with_the_header(stranger, app, delayq):
    stranger.send_task("t", task_id="a", delayq_at=FAR, delayq_once=True)
    Consumer(app).receive()
    assert envelope(delayq, "a").headers["delayq_once"] is True


def test_once_alone_is_no_reason_to_complain_of_a_process_without_a_delayq(
    stranger, app, delayq, caplog
):
    stranger.send_task("t", task_id="a", delayq_once=True)
    consumer = Consumer(app)
    consumer.receive()
    assert len(consumer.ran) == 1
    assert caplog.messages == []
