"""A queue, exchange or routing key that is not text is refused, with any priority."""

import pytest
from kombu import Queue

from celery_delayq.errors import InvalidOption
from tests.app.support import LONG_AGO, lists


@pytest.mark.parametrize(
    ("queue", "priority"), [(5, None), (5.5, 3), (b"mail", 9), (True, 0), ((1,), None)], ids=repr
)
def test_a_queue_that_is_no_text_is_refused_as_by_celery(app, make_app, redis, queue, priority):
    with pytest.raises((AttributeError, TypeError)):
        make_app(app.conf.broker_url).send_task("t", queue=queue, priority=priority)

    with pytest.raises(InvalidOption) as caught:
        app.send_task("t", queue=queue, priority=priority, delayq_at=LONG_AGO)

    assert str(caught.value) == f"queue is {queue!r}; expected text, or a Queue whose name is"
    assert not redis.exists("{delayq:0}:records")
    assert app.delayq.hand_over() == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"queue": Queue(5)}, "queue is 5; expected text"),
        ({"exchange": "x", "routing_key": 5}, "routing_key is 5; expected text"),
        ({"exchange": 5, "routing_key": "k"}, "exchange is 5; expected text"),
    ],
    ids=repr,
)
def test_a_name_of_a_queue_an_exchange_or_a_key_that_is_no_text_is_refused(app, options, says):
    with pytest.raises(InvalidOption) as caught:
        app.send_task("t", **options, priority=3, delayq_at=LONG_AGO)

    assert str(caught.value).startswith(says)


@pytest.mark.parametrize("options", [{"routing_key": 5}, {"exchange": 5}])
def test_options_that_celery_leaves_out_for_a_plain_queue_do_not_matter(app, redis, options):
    app.send_task("t", **options, delayq_at=LONG_AGO)

    assert app.delayq.hand_over() == 1
    assert [*lists(redis)] == [b"celery"]
