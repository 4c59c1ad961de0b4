"""`delayq_max_message`: the call refuses a larger message, or leaves it to Celery if captured."""

import json
import logging
from datetime import datetime, timezone
from random import Random

import pytest
from celery import group
from celery.signals import before_task_publish

from celery_delayq.errors import MessageTooLarge
from tests.app.bulk import plain_task
from tests.app.support import ALL_WAYS, FAR, only_message

MOST = 20_000
LARGE = "x" * MOST
DENSE = Random(1).randbytes(MOST).hex()  # compressed, it is too large as well
DUE = datetime.fromtimestamp(FAR, timezone.utc)

CALLS = {
    **{name: lambda task, way=way: way(task, LARGE) for name, way in ALL_WAYS.items()},
    "canvas": lambda task: task.app.delayq.schedule(group(task.s(DENSE), task.s(1)), at=FAR),
    "template": lambda task: task.s(LARGE).set(expires=60).delay_for(60),
}


@pytest.fixture
def app(delayq_app, url):
    return delayq_app(url, delayq_max_message=MOST)


@pytest.fixture
def capturing(app, remind):
    app.conf.delayq_capture_eta = True
    return remind


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_larger_message_is_refused_and_writes_nothing(remind, redis, call):
    with pytest.raises(MessageTooLarge):
        call(remind)

    assert redis.keys() == []


def test_the_error_says_how_large_it_is_and_which_setting_forbids_it(remind):
    with pytest.raises(MessageTooLarge) as caught:
        remind.apply_async((LARGE,), task_id="a", delayq_at=FAR)

    error = caught.value
    assert (error.task_id, error.most) == ("a", MOST)
    # In base64, and with the headers, in which the arguments' text takes up to 1,024 bytes.
    assert MOST * 4 / 3 < error.size < MOST * 4 / 3 + 2500
    assert str(error) == (
        f"the message of task 'a' has {error.size} bytes; delayq_max_message is {MOST}; pass a "
        "reference to the data, or raise the setting"
    )


def test_the_size_is_that_of_the_message(remind, app, delayq):
    app.conf.delayq_max_message = 100_000
    result = remind.delay_until(FAR, LARGE)
    stored = len(delayq.services.entries.find(result.id).message)

    # The due time is filled in later.
    app.conf.delayq_max_message = stored
    remind.delay_until(FAR, LARGE)
    app.conf.delayq_max_message = stored - 20
    with pytest.raises(MessageTooLarge) as caught:
        remind.delay_until(FAR, LARGE)
    assert stored - 20 < caught.value.size <= stored


def test_a_message_that_compression_makes_small_enough_is_taken(remind, delayq):
    result = remind.s(LARGE).set(compression="zlib").delay_for(60)

    assert delayq.state(result.id) == "SCHEDULED"


def test_a_call_that_is_not_scheduled_may_be_of_any_size(remind, redis):
    remind.delay(LARGE)
    remind.apply_async((LARGE,), countdown=60)

    assert redis.llen("celery") == 2


@pytest.mark.parametrize("large", [0, 1, 2, 5], ids="item-{}".format)
def test_an_item_of_a_bulk_that_is_larger_is_refused_alone(remind, delayq, large):
    items = [((LARGE if number == large else number,), {}) for number in range(6)]

    bulk = delayq.schedule_many(remind, items, at=FAR)

    assert [*bulk.refused] == [large]
    assert isinstance(bulk.refused[large], MessageTooLarge)
    assert delayq.counts().scheduled == bulk.scheduled == 5


def test_an_item_that_is_filled_in_is_looked_at_too(app, delayq, limits):
    limits(large_edit_bytes=10 * MOST, large_message_bytes=10 * MOST)
    test_an_item_of_a_bulk_that_is_larger_is_refused_alone(plain_task(app), delayq, 5)


# Captured calls: switching it on breaks none of them.


def test_a_warning_says_what_is_left_to_celery(capturing, caplog):
    with caplog.at_level(logging.WARNING, "celery_delayq"):
        capturing.apply_async((LARGE,), task_id="a", eta=DUE)

    [line] = caplog.messages
    assert line.startswith("task a: a message of 2")
    assert line.endswith(f" bytes, with delayq_max_message {MOST}, is left to Celery")


def test_large_headers_of_a_captured_call_count_as_well(capturing, redis):
    capturing.apply_async((1,), eta=DUE, headers={"note": LARGE})

    assert json.loads(only_message(redis)[1])["headers"]["eta"] == DUE.isoformat()


def test_a_message_that_grows_on_its_way_is_captured_all_the_same(capturing, delayq, listen):
    listen(before_task_publish, lambda headers, **_: headers.update(note=LARGE))

    result = capturing.apply_async((1,), eta=DUE)

    assert delayq.state(result.id) == "SCHEDULED"


def test_a_call_with_a_due_time_is_refused_even_if_calls_are_captured(capturing, redis):
    with pytest.raises(MessageTooLarge):
        capturing.apply_async((LARGE,), delayq_at=FAR)
    assert redis.keys() == []
