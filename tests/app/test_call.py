"""The options of a call: its time, its expiry, its id, its route, and all that Celery has."""

import json
import pickle
from datetime import datetime, timedelta, timezone
from enum import Enum
from types import SimpleNamespace
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from celery.result import AsyncResult
from celery.signals import after_task_publish, before_task_publish
from dateutil.parser import isoparse
from kombu import Exchange, Queue

from celery_delayq import Outcome, State
from celery_delayq.core.clock import from_ms
from celery_delayq.core.message.outgoing import OutgoingMessage, dumps
from celery_delayq.core.store.record import FORM, labels_for
from celery_delayq.errors import InvalidOption
from tests.app.support import (
    FAR,
    LONG_AGO,
    WAYS,
    comparable,
    envelope,
    lists,
    noop,
    only_message,
    received,
    redis_ms,
    to_ms,
)
from tests.support.waiting import PATIENCE

pytestmark = [pytest.mark.core, pytest.mark.libraries]


# Every option of `apply_async`, by every way to schedule, reaches the worker unchanged.


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

    [seen] = received(app, accept=["pickle"])
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


# The times that a call may pass, and the resulting due time of the entry.


UTC = timezone.utc
A_MILLISECOND = timedelta(milliseconds=1)


@pytest.mark.parametrize("delay", [90, timedelta(seconds=90), timedelta(days=36_500)])
def test_a_relative_delay_counts_from_the_call_by_redis_s_clock(add, redis, delay):
    before = redis_ms(redis)
    result = add.delay_for(delay, 1)
    after = redis_ms(redis)

    delay_ms = 90_000 if delay == 90 else delay / A_MILLISECOND
    assert before + delay_ms <= to_ms(result.due) <= after + delay_ms + 1


BERLIN = ZoneInfo("Europe/Berlin")


def wall(text, fold=0):
    return datetime.fromisoformat(text).replace(fold=fold)


@pytest.mark.parametrize("enable_utc", [True, False])
def test_a_naive_time_is_wall_time_in_the_app_s_zone_as_zoneinfo_has_it(
    delayq_app, url, enable_utc
):
    app = delayq_app(url, timezone="Europe/Berlin", enable_utc=enable_utc)
    ambiguous = wall("2030-10-27T02:30", fold=1)
    summer = datetime(2030, 7, 1, 10, tzinfo=UTC)

    for when, expected in (
        (ambiguous, ambiguous.replace(tzinfo=BERLIN).astimezone(UTC)),
        (ambiguous.replace(tzinfo=BERLIN), ambiguous.replace(tzinfo=BERLIN).astimezone(UTC)),
        ("2030-07-01T12:00", summer),
        (wall("2030-07-01T12:00"), summer),
    ):
        assert app.delayq.get(app.send_task("t", delayq_at=when).id).due == expected


# `expires`: relative, it counts from the due time; absolute, it is kept.


DUE = datetime.fromtimestamp(FAR, timezone.utc)
EXPIRES = datetime(2101, 1, 1, tzinfo=timezone.utc)
LOOSE = timedelta(seconds=PATIENCE)


def close(expires, to):
    return abs(isoparse(expires) - to) < LOOSE


def expiry(delayq, result):
    return envelope(delayq, getattr(result, "id", result)).headers["expires"]


@pytest.mark.parametrize("way", WAYS)
def test_a_relative_expiry_counts_from_the_due_time_and_an_absolute_one_is_kept(add, delayq, way):
    assert close(expiry(delayq, WAYS[way](add, 1, expires=60)), DUE + timedelta(seconds=60))
    for expires in (EXPIRES, EXPIRES.isoformat()):
        assert isoparse(expiry(delayq, WAYS[way](add, 1, expires=expires))) == EXPIRES


@pytest.mark.parametrize("expires", [0, 0.5, 10**6, -1, -0.5, -86_400])
def test_a_relative_expiry_may_be_of_any_size_and_before_the_due_time(add, delayq, redis, expires):
    add.s(1).set(expires=expires, task_id="a").delay_until(DUE)
    add.delay_until(0, 2)
    assert close(expiry(delayq, "a"), DUE + timedelta(seconds=expires))
    delayq.reschedule("a", 0)
    assert delayq.hand_over() == 2


@pytest.mark.parametrize("delay", [3600, timedelta(hours=1)])
def test_a_relative_expiry_counts_from_a_relative_due_time(add, delayq, delay):
    result = add.s(1).set(expires=60).delay_for(delay)
    assert close(expiry(delayq, result), result.due + timedelta(seconds=60))


def test_a_task_s_own_expiry_counts_from_the_due_time(app, delayq):
    @app.task(name="t", expires=60)
    def task(x):
        return x

    for result in (task.delay_until(DUE, 1), task.s(1).delay_until(DUE)):
        assert close(expiry(delayq, result), DUE + timedelta(seconds=60))


def test_a_captured_countdown_expires_after_it_is_due(app, add, delayq):
    app.conf.delayq_capture_eta = True
    result = add.apply_async((1,), countdown=3600, expires=60)
    assert close(expiry(delayq, result), delayq.get(result.id).due + timedelta(seconds=60))


@pytest.mark.parametrize("is_naive", [False, True], ids=["as Celery has it", "naive"])
def test_the_broker_s_time_to_live_counts_from_the_hand_over(delayq_app, url, redis, is_naive):
    topic = Queue("q", Exchange("x", type="topic"), routing_key="#")
    app = delayq_app(url, task_queues=[topic], timezone="Asia/Tokyo")
    soon = datetime.now(timezone.utc) + timedelta(seconds=90)
    # As an adopted message may have it, or a program's own headers.
    headers = {"expires": soon.replace(tzinfo=None).isoformat()} if is_naive else {}
    app.send_task("t", queue=topic, delayq_at=0, expires=soon, headers=headers)

    app.delayq.hand_over()

    [raw] = redis.lrange("q", 0, -1)
    # In milliseconds, as text: AMQP requires this.
    assert 60_000 < float(json.loads(raw)["properties"]["expiration"]) <= 90_000


def test_an_expiry_in_thousands_of_years_stays_a_date_that_a_worker_can_read(add, delayq):
    add.s(1).set(expires=86_400 * 365 * 7950, task_id="a").delay_until(DUE)

    for hours in (-12, 14):
        zone = timezone(timedelta(hours=hours))
        assert isoparse(expiry(delayq, "a")).astimezone(zone).year > 9900


# Custom task ids: stored as the text that is delivered; the error names the accepted types.


class Job(str, Enum):  # StrEnum is its own value in every respect
    """``str`` turns its members into their names."""

    NIGHTLY = "nightly-report"


NUMBER = UUID("0d5bd3c7-6d6c-4c3b-8d2a-5a52b0d0a3f1")


BULK = lambda add, *args, at=FAR, task_id: add.app.delayq.schedule_many(  # noqa: E731
    add, [(args, {}, at, task_id)]
)


@pytest.fixture(params=[*WAYS.values(), BULK], ids=[*WAYS, "bulk"])
def schedule(request, add):
    """Each way to give a task an id."""
    return lambda name: request.param(add, 1, task_id=name)


@pytest.mark.parametrize(
    ("given", "text"),
    [(Job.NIGHTLY, "nightly-report"), (NUMBER, str(NUMBER))],
    ids=["enum", "UUID"],
)
@pytest.mark.operations
def test_an_id_is_its_text_in_the_store_in_the_queue_and_as_a_name(
    schedule, delayq, redis, given, text
):
    schedule(given)
    assert [task.id for task in delayq.tasks()] == [text]
    assert delayq.get(text).id == delayq.get(given).id == text
    assert delayq.reschedule(given, LONG_AGO)

    delayq.hand_over()

    message = json.loads(only_message(redis)[1])
    assert message["headers"]["id"] == message["properties"]["correlation_id"] == text
    assert message["headers"]["root_id"] == text


# Celery's backends wake a result only if its id is its message's.
@pytest.mark.parametrize("time", [{}, {"delayq_at": LONG_AGO}, {"countdown": 3000}])
def test_a_uuid_is_text_in_a_call_s_message_and_in_its_result(delayq_app, url, redis, time):
    app = delayq_app(url, delayq_capture_eta=True)
    more = {"root_id": NUMBER, "parent_id": NUMBER, "group_id": NUMBER}

    result = app.send_task("t", task_id=NUMBER, **more, **time)
    app.delayq.run_now(NUMBER)
    app.delayq.hand_over()

    headers = json.loads(only_message(redis)[1])["headers"]
    ids = [headers[name] for name in ("id", "root_id", "parent_id", "group")]
    assert ids == 4 * [str(NUMBER)]
    assert result.id == app.AsyncResult(NUMBER).id == str(NUMBER)


NAMES = {
    "text": lambda result: result.id,
    "the result": lambda result: result,
    "Celery's result": lambda result: AsyncResult(result.id),
    "the result as it travels": lambda result: pickle.loads(pickle.dumps(result)),
    "UUID": lambda result: UUID(result.id),
    "the task that was read": lambda result: result.app.delayq.get(result.id),
    "a task of a list": lambda result: next(
        one for one in result.app.delayq.tasks() if one.id == result.id
    ),
}


@pytest.mark.parametrize("named", NAMES.values(), ids=NAMES)
def test_a_task_is_named_by_its_result_its_uuid_or_its_id(add, delayq, redis, named):
    add.delay_until(FAR, 2)
    result = add.delay_until(FAR, 1)
    one = named(result)

    assert delayq.get(one).id == result.id
    assert delayq.reschedule(one, FAR + 1)
    assert delayq.get(one).due == from_ms((FAR + 1) * 1000)
    assert delayq.state(one) is State.SCHEDULED
    assert delayq.cancel(one)
    assert delayq.cancel(one) is Outcome.NOT_FOUND
    assert delayq.counts().scheduled == 1
    gone = named(add.delay_until(LONG_AGO, 1))
    delayq.hand_over()
    assert delayq.handed_over(gone)


def test_an_object_with_the_id_of_a_task_does_not_name_that_task(add, delayq):
    task = SimpleNamespace(id=add.delay_until(FAR, 1).id)

    for step in (delayq.cancel, delayq.get, delayq.state, lambda one: delayq.reschedule(one, FAR)):
        with pytest.raises(
            InvalidOption, match=r"512 bytes, a UUID, a result or a ScheduledTask; pass its \.id$"
        ):
            step(task)

    assert delayq.get(task.id)


# Queue, exchange and routing key: given at the call, by the task, or by the app's routes.


@pytest.mark.parametrize(
    ("options", "queue"),
    [
        ({}, b"shop"),
        ({"queue": "mail"}, b"mail"),
        ({"queue": Queue("mail", Exchange("x"), routing_key="y")}, b"mail"),
    ],
    ids=["default", "name", "queue of kombu"],
)
def test_a_queue_is_given_at_the_call_or_is_the_app_s(delayq_app, url, redis, options, queue):
    app = delayq_app(url, task_default_queue="shop")
    app.send_task("add", (1,), delayq_at=LONG_AGO, **options)

    app.delayq.hand_over()

    assert list(lists(redis)) == [queue]


def test_task_routes_are_asked_when_the_task_is_scheduled(delayq_app, url, redis):
    app = delayq_app(url, task_routes={"mail.*": {"queue": "mail", "priority": 6}})
    app.send_task("mail.send", (1,), delayq_at=LONG_AGO)
    app.send_task("mail.send", (1,), delayq_at=LONG_AGO, queue="other")

    app.delayq.hand_over()

    assert set(lists(redis)) == {b"mail\x06\x166", b"other\x06\x166"}


def test_a_routing_function_sees_no_option_of_this_package_s_making(delayq_app, url, redis):
    seen = []

    def route(name, args, kwargs, options, task=None, **_):
        seen.append((name, args, kwargs))
        return {"queue": f"q{args[0]}"}

    app = delayq_app(url, task_routes=(route,))

    app.task(name="add")(noop).delay_until(LONG_AGO, 7)
    app.delayq.hand_over()

    assert seen == [("add", (7,), {})]
    assert list(lists(redis)) == [b"q7"]


def test_an_unknown_queue_is_refused_at_the_call_where_the_app_refuses_it(delayq_app, url, redis):
    app = delayq_app(url, task_create_missing_queues=False)

    with pytest.raises(Exception, match="nowhere"):
        app.send_task("add", (1,), queue="nowhere", delayq_after=60)
    assert redis.keys() == []


TOPIC = Exchange("events", type="topic")
EXCHANGES = {
    "topic queue": {"queue": Queue("all", TOPIC, routing_key="#")},
    "topic exchange and key": {"exchange": "events", "routing_key": "shop.order"},
    "exchange object": {"exchange": TOPIC, "routing_key": "shop.order"},
    "direct exchange and key": {"exchange": "plain", "routing_key": "here"},
}


@pytest.mark.parametrize("how", EXCHANGES)
def test_a_named_exchange_delivers_to_the_queues_that_are_bound_to_it(
    make_app, delayq_app, url, redis, how
):
    queues = [
        Queue("all", TOPIC, routing_key="#"),
        Queue("orders", TOPIC, routing_key="*.order"),
        Queue("other", TOPIC, routing_key="mail.*"),
        Queue("plain", Exchange("plain"), routing_key="here"),
    ]
    options = {**EXCHANGES[how], "task_id": "a", "reply_to": "caller", "priority": 3}
    plain, held = make_app(url, task_queues=queues), delayq_app(url, task_queues=queues)
    with plain.connection_for_write() as connection:
        # On Redis only a connection that declared an exchange, as a worker's does, knows its type.
        for queue in queues:
            queue(connection.default_channel).declare()
        plain.send_task("add", (1,), producer=plain.amqp.Producer(connection), **options)
    by_kombu = lists(redis)
    redis.delete(*by_kombu)
    held.send_task("add", (1,), delayq_at=LONG_AGO, **options)

    assert held.delayq.hand_over() == 1

    by_relay = lists(redis)
    assert by_relay.keys() == by_kombu.keys()
    assert {key: comparable(one) for key, [one] in by_relay.items()} == {
        key: comparable(one) for key, [one] in by_kombu.items()
    }


def test_a_fanout_without_listeners_reaches_none_and_is_done(delayq_app, url):
    fanout = Queue("mine", Exchange("news", type="fanout"))
    app = delayq_app(url, task_queues=[fanout])
    result = app.send_task("add", (1,), queue=fanout, delayq_at=LONG_AGO)

    assert app.delayq.hand_over() == 1

    assert app.delayq.state(result.id) is None


def test_a_queue_that_expires_is_left_to_kombu_which_knows_how(make_app, delayq_app, url, redis):
    """tests/relay has one that expires by an argument."""
    queue = Queue("short", expires=60)
    make_app(url, task_queues=[queue]).send_task("add", (1,), queue=queue)
    ttl = redis.ttl("short")  # -1 with a kombu that lets no queue expire
    redis.flushall()
    app = delayq_app(url, task_queues=[queue])
    app.send_task("add", (1,), queue=queue, delayq_at=LONG_AGO)

    assert app.delayq.hand_over() == 1

    assert redis.llen("short") == 1
    assert (redis.ttl("short") > 0) == (ttl > 0)


# An entry carries labels that filters read: its task, and the queue that it was sent with.


def labels(app, task_id):
    record = app.delayq.services.entries.find(task_id).record
    return record.text[record.header_end + FORM - 13 : record.header_end + FORM]


@pytest.mark.parametrize("broker", [None, "memory://"], ids=["the store", "another"])
@pytest.mark.parametrize(
    "options", [{}, {"queue": "mail", "priority": 9}, {"queue": "topic"}, {"queue": "direct"}]
)
def test_labels_name_the_task_and_the_queue_and_not_the_key_that_leads_to_it(
    delayq_app, url, broker, options
):
    queues = [
        Queue(kind, Exchange(f"of {kind}", type=kind), routing_key="sent.fast")
        for kind in ("topic", "direct")
    ]
    app = delayq_app(broker or url, delayq_url=url, task_queues=[Queue("celery"), *queues])

    task_id = app.send_task("add", (1,), delayq_at=LONG_AGO, **options).id

    assert labels(app, task_id) == labels_for("add", options.get("queue", "celery"))


def test_labels_have_the_routing_key_where_no_queue_is_known():
    message = {"headers": {"task": "add"}, "properties": {}}
    sent = OutgoingMessage(message, "letters", "sent.fast", [Exchange("letters")], b"", dumps)

    assert sent.labels == labels_for("add", "sent.fast")
