"""Queue, exchange and routing key: given at the call, by the task, or by the app's routes."""

import pytest
from kombu import Exchange, Queue

from celery_delayq.core.message.outgoing import OutgoingMessage, dumps
from celery_delayq.core.store.record import FORM, labels_for
from tests.app.support import LONG_AGO, comparable, lists, noop

pytestmark = [pytest.mark.core, pytest.mark.libraries]


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
