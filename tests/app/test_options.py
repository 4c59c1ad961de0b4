"""Every option of `apply_async`, by every way to schedule, reaches the worker unchanged."""

import json

import pytest
from celery.signals import after_task_publish, before_task_publish

from tests.app.support import LONG_AGO, WAYS, envelope, noop, only_message

pytestmark = [pytest.mark.core, pytest.mark.libraries]


@pytest.mark.parametrize("way", WAYS)
def test_options_are_what_the_worker_will_see(app, add, delayq, way):
    link, error = add.s(2), add.si(3)
    options = {
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
        "link": link,
        "link_error": error,
    }

    result = WAYS[way](add, 1, at=LONG_AGO, **options)
    delayq.hand_over()

    with app.connection_for_read() as connection:
        seen = connection.SimpleQueue("celery", no_ack=True, accept=["pickle"]).get_nowait()
    assert seen.properties["priority"] == 4
    assert seen.properties["reply_to"] == "somebody"
    assert seen.content_type == "application/x-python-serialize"
    assert seen.headers["compression"] == "application/x-bz2"
    assert seen.headers["trace"] == "ü"
    assert seen.headers["timelimit"] == [30, 20]
    assert seen.headers["shadow"] == "another name"
    assert seen.headers["ignore_result"] is True
    assert seen.headers["stamped_headers"] == ["who"]
    assert seen.headers["stamps"] == {"who": "me"}
    assert seen.headers["id"] == result.id == seen.properties["correlation_id"]
    assert (seen.payload[2]["callbacks"], seen.payload[2]["errbacks"]) == ([link], [error])


# Options of the task, annotations of the app, options of the call; options that the worker sees.
DEFAULTS = {
    "the task's": (
        {"serializer": "pickle", "compression": "zlib", "time_limit": 9, "ignore_result": True},
        {},
        {},
        ("application/x-python-serialize", "application/x-gzip", [9, None], True, 0),
    ),
    "the call's before the task's": (
        {"serializer": "pickle", "time_limit": 9},
        {},
        {"serializer": "json", "time_limit": 7},
        ("application/json", None, [7, None], False, 0),
    ),
    "the app's annotations": (
        {},
        {"t": {"priority": 8, "soft_time_limit": 5}},
        {},
        ("application/json", None, [None, 5], False, 8),
    ),
}


@pytest.mark.parametrize("whose", DEFAULTS)
def test_options_of_the_task_and_of_the_app_are_defaults(delayq_app, url, whose):
    of_task, annotations, of_call, expected = DEFAULTS[whose]
    app = delayq_app(url, task_annotations=annotations)
    task = app.task(name="t", **of_task)(noop)

    result = task.s(1).set(**of_call).delay_for(3600)

    held = envelope(app.delayq, result.id)
    names = ("timelimit", "ignore_result")
    assert (
        held.raw["content-type"],
        held.headers.get("compression"),
        *(held.headers[name] for name in names),
        held.properties["priority"],
    ) == expected


def test_signals_of_sending_are_sent_as_celery_sends_them(add, delayq, listen):
    seen = []

    def heard(sender=None, headers=None, **_):
        headers["request"] = "r-1"
        seen.append((sender, headers["id"]))

    listen(before_task_publish, heard)
    listen(after_task_publish, heard)

    result = add.delay_for(3600, 1)

    assert seen == [("add", result.id)] * 2
    assert envelope(delayq, result.id).headers["request"] == "r-1"


def test_a_header_of_ours_that_a_retry_copied_is_not_the_new_entry_s(add, delayq):
    copied = {"delayq_attempt": 3, "delayq_redelivered": True, "delayq_hand_over": "7.1"}
    headers = {"delayq_due": 1, "mine": 5, **copied}

    result = add.apply_async((1,), headers=headers, delayq_at=LONG_AGO)

    seen = envelope(delayq, result.id).headers
    assert (seen["delayq_due"], seen["mine"]) == (LONG_AGO * 1000, 5)
    assert not seen.keys() & copied.keys()


@pytest.mark.parametrize("copied", [{}, {"delayq_due": 1}])
def test_a_task_that_is_sent_plainly_has_no_header_of_ours(add, redis, copied):
    result = add.apply_async((1,), headers={"mine": 5, **copied})

    headers = json.loads(only_message(redis)[1])["headers"]
    assert (headers["id"], headers["mine"]) == (result.id, 5)
    assert [name for name in headers if name.startswith("delayq")] == []


def test_a_callback_may_wait_as_well(app, add, delayq):
    callback = json.loads(json.dumps(add.s(7).set(delayq_at=LONG_AGO * 4)))

    # A worker does this when the task that it is linked to has ended.
    result = app.signature(callback).apply_async((5,))

    held = delayq.get(result.id)
    assert (held.args, held.due.timestamp()) == ((5, 7), LONG_AGO * 4)
