"""Every option of `apply_async`, by every way to schedule, reaches the worker unchanged."""

import json

import pytest

from tests.app.support import LONG_AGO, envelope, lists, only_message

pytestmark = [pytest.mark.core, pytest.mark.libraries]

OPTIONS = {
    "priority": 4,
    "headers": {"trace": "ü"},
    "time_limit": 30,
    "soft_time_limit": 20,
    "shadow": "another name",
    "ignore_result": True,
    "serializer": "pickle",
    "compression": "bzip2",
    "reply_to": "somebody",
    "stamped_headers": ["who"],
    "who": "me",
}


def through_signature(task, options):
    return task.s(1).set(**options).delay_for(3600)


def through_apply_async(task, options):
    return task.apply_async((1,), delayq_after=3600, **options)


def through_signature_apply_async(task, options):
    return task.s(1).apply_async(delayq_after=3600, **options)


def through_send_task(task, options):
    return task.app.send_task(task.name, (1,), delayq_after=3600, **options)


def through_schedule(task, options):
    return task.app.delayq.schedule(task.s(1).set(**options), after=3600)


DOORS = [
    through_signature,
    through_apply_async,
    through_signature_apply_async,
    through_send_task,
    through_schedule,
]


@pytest.mark.parametrize("door", DOORS)
def test_options_are_what_the_worker_will_see(add, delayq, door):
    result = door(add, OPTIONS)

    held = envelope(delayq, result.id)
    seen = held.headers
    assert held.properties["priority"] == 4
    assert held.properties["reply_to"] == "somebody"
    assert held.raw["content-type"] == "application/x-python-serialize"
    assert seen["compression"] == "application/x-bz2"
    assert seen["trace"] == "ü"
    assert seen["timelimit"] == [30, 20]
    assert seen["shadow"] == "another name"
    assert seen["ignore_result"] is True
    assert seen["stamped_headers"] == ["who"]
    assert seen["stamps"] == {"who": "me"}
    assert seen["id"] == result.id == held.properties["correlation_id"]


@pytest.mark.parametrize("door", DOORS)
def test_callbacks_are_in_the_body_as_celery_puts_them(app, add, delayq, redis, door):
    link, error = add.s(2), add.si(3)
    result = door(add, {"link": link, "link_error": error})

    delayq.reschedule(result.id, LONG_AGO)
    delayq.hand_over()

    with app.connection_for_read() as connection:
        message = connection.SimpleQueue("celery", no_ack=True).get_nowait()
    embedded = message.payload[2]
    assert embedded["callbacks"] == [json.loads(json.dumps(link))]
    assert embedded["errbacks"] == [json.loads(json.dumps(error))]


def test_a_task_s_own_options_are_its_defaults(app, delayq):
    @app.task(
        name="t",
        serializer="pickle",
        compression="zlib",
        time_limit=9,
        soft_time_limit=8,
        ignore_result=True,
    )
    def task(x):
        return x

    result = task.delay_for(3600, 1)

    held = envelope(delayq, result.id)
    assert held.raw["content-type"] == "application/x-python-serialize"
    assert held.headers["compression"] == "application/x-gzip"
    assert held.headers["timelimit"] == [9, 8]
    assert held.headers["ignore_result"] is True


def test_options_of_the_call_win_over_the_task_s_own(app, delayq):
    @app.task(name="t", serializer="pickle", time_limit=9)
    def task(x):
        return x

    result = task.s(1).set(serializer="json", time_limit=7).delay_for(3600)

    held = envelope(delayq, result.id)
    assert held.raw["content-type"] == "application/json"
    assert held.headers["timelimit"][0] == 7


def test_annotations_of_the_app_apply(delayq_app, url):
    app = delayq_app(url, task_annotations={"t": {"priority": 8, "time_limit": 5}})

    @app.task(name="t")
    def task(x):
        return x

    result = task.delay_for(3600, 1)

    held = envelope(app.delayq, result.id)
    assert held.properties["priority"] == 8
    assert held.headers["timelimit"][0] == 5


def test_delay_0_is_immediate_and_keeps_the_priority(app, add, delayq, redis):
    add.s(1).set(priority=6).delay_until(LONG_AGO)
    add.s(1).set(priority=9).delay_until(LONG_AGO)

    delayq.hand_over()

    assert set(lists(redis)) == {b"celery\x06\x166", b"celery\x06\x169"}


def test_the_task_s_id_may_be_given(add, delayq):
    result = add.s(1).set(task_id="order-42").delay_for(3600)

    assert result.id == "order-42"
    assert delayq.get("order-42").id == "order-42"


def test_no_eta_is_left_in_the_message_or_a_worker_would_hold_it_again(app, add, delayq, redis):
    app.conf.delayq_capture_eta = True
    result = add.apply_async((1,), countdown=3600)

    delayq.run_now(result)
    delayq.hand_over()

    assert json.loads(only_message(redis)[1])["headers"]["eta"] is None


def test_signals_of_sending_are_sent_as_celery_sends_them(app, add, delayq):
    from celery.signals import after_task_publish, before_task_publish

    seen = []

    def on_signal(sender=None, headers=None, **_):
        seen.append((sender, headers["id"]))

    before_task_publish.connect(on_signal)
    after_task_publish.connect(on_signal)
    try:
        result = add.delay_for(3600, 1)
    finally:
        before_task_publish.disconnect(on_signal)
        after_task_publish.disconnect(on_signal)

    assert seen == [("add", result.id)] * 2


def test_headers_that_a_signal_handler_adds_are_scheduled(app, add, delayq):
    from celery.signals import before_task_publish

    def on_signal(headers=None, **_):
        headers["request"] = "r-1"

    before_task_publish.connect(on_signal)
    try:
        result = add.delay_for(3600, 1)
    finally:
        before_task_publish.disconnect(on_signal)

    assert envelope(delayq, result.id).headers["request"] == "r-1"


def test_a_header_of_ours_that_a_retry_copied_is_not_the_new_entry_s(app, add, delayq, redis):
    headers = {"delayq_due": 1, "delayq_attempt": 3, "delayq_redelivered": True, "mine": 5}
    headers["delayq_hand_over"] = "7.1"

    result = add.apply_async((1,), headers=headers, delayq_at=LONG_AGO)

    seen = envelope(delayq, result.id).headers
    assert seen["delayq_due"] == LONG_AGO * 1000
    assert "delayq_attempt" not in seen
    assert "delayq_redelivered" not in seen
    assert "delayq_hand_over" not in seen
    assert seen["mine"] == 5


def test_a_header_of_ours_is_not_passed_on_by_a_task_that_is_sent_plainly(app, add, redis):
    add.apply_async((1,), headers={"delayq_due": 1, "mine": 5})

    headers = json.loads(only_message(redis)[1])["headers"]
    assert "delayq_due" not in headers
    assert headers["mine"] == 5


def test_sending_plainly_is_as_it_was(app, add, redis):
    result = add.delay(1)

    message = json.loads(only_message(redis)[1])
    assert message["headers"]["id"] == result.id
    assert not any(name.startswith("delayq") for name in message["headers"])


def test_a_callback_may_wait_as_well(app, add, delayq):
    callback = json.loads(json.dumps(add.s(7).set(delayq_at=LONG_AGO * 4)))

    # A worker does this when the task that it is linked to has ended.
    result = app.signature(callback).apply_async((5,))

    held = delayq.get(result.id)
    assert (held.args, held.due.timestamp()) == ((5, 7), LONG_AGO * 4)
