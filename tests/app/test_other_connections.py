"""A call with a connection or a producer of its own: only the app's broker has scheduled tasks."""

import json
from datetime import datetime

import pytest
from celery import chain, chord, group
from kombu import Connection, Exchange, Producer
from redis import Redis

from celery_delayq.errors import InvalidOption
from tests.app.support import lists

pytestmark = pytest.mark.libraries


@pytest.fixture
def app(delayq_app, url):
    return delayq_app(url, delayq_capture_eta=True)


@pytest.fixture
def other(redis_server, redis):
    """A client of the other broker."""
    return Redis.from_url(redis_server.url(1))


@pytest.fixture
def connection(redis_server):
    """A connection to another broker than the app's."""
    with Connection(redis_server.url(1)) as one:
        yield one


# Each way to bring one; `sent` has the time, and the messages that plain Celery sends.
WAYS = {
    "connection": lambda add, to, sent: add.apply_async((1,), connection=to, **sent),
    "producer": lambda add, to, sent: add.apply_async((1,), producer=Producer(to), **sent),
    "publisher": lambda add, to, sent: add.apply_async((1,), publisher=Producer(to), **sent),
    "channel": lambda add, to, sent: add.apply_async((1,), producer=Producer(to.channel()), **sent),
    "send_task": lambda add, to, sent: add.app.send_task("add", (1,), connection=to, **sent),
    "by a producer": lambda add, to, sent: add.app.send_task(
        "add", (1,), producer=Producer(to), **sent
    ),
    "signature": lambda add, to, sent: add.s(1).apply_async(connection=to, **sent),
    "set": lambda add, to, sent: add.s(1).set(producer=Producer(to), **sent).apply_async(),
    "chain": lambda add, to, sent: chain(add.s(1), add.s(2)).apply_async(connection=to, **sent),
    "group": lambda add, to, sent: group(add.s(1)).apply_async(producer=Producer(to), **sent),
    "map": lambda add, to, sent: add.map([1]).apply_async(producer=Producer(to), **sent),
}
each_way = pytest.mark.parametrize("call", WAYS.values(), ids=WAYS)


@each_way
def test_a_captured_call_with_another_connection_is_left_to_celery(
    add, redis, other, connection, call
):
    call(add, connection, {"countdown": 3000, "expires": 60})

    [(_, [raw])] = lists(other).items()
    headers = json.loads(raw)["headers"]
    assert datetime.fromisoformat(headers["expires"]) < datetime.fromisoformat(headers["eta"])
    assert "delayq_expires_ms" not in headers
    assert (add.app.delayq.counts().scheduled, lists(redis)) == (0, {})


REFUSED = {
    **{
        name: lambda add, to, call=call: call(add, to, {"delayq_after": 3000})
        for name, call in WAYS.items()
    },
    "captured with a key": lambda add, to: add.apply_async(
        (1,), connection=to, countdown=3000, delayq_key="k"
    ),
    "schedule": lambda add, to: add.app.delayq.schedule(add.s(1).set(connection=to), after=3000),
    "delay_for": lambda add, to: add.s(1).set(producer=Producer(to)).delay_for(3000),
    "bulk": lambda add, to: add.app.delayq.schedule_many(
        add.s().set(connection=to), [((x,), {}) for x in range(3)], after=3000
    ),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_a_scheduled_call_with_another_connection_is_refused(add, redis, other, connection, call):
    with pytest.raises(InvalidOption) as refused:
        call(add, connection)

    assert refused.value.value == connection.as_uri()
    assert str(refused.value).endswith(
        "expected none, or one that publishes as the app's own do: a scheduled task goes to the "
        "app's broker; for another broker, use an app of that broker"
    )
    assert (add.app.delayq.counts().scheduled, lists(redis), lists(other)) == (0, {}, {})


CANVASES = {
    "its own": lambda add, to: chain(add.s(1), add.s(2)).set(connection=to),
    "a part's": lambda add, to: chain(add.s(1).set(producer=Producer(to)), add.s(2)),
    "a member's": lambda add, to: group(add.s(1), add.s(2).set(publisher=Producer(to))),
    "a body's": lambda add, to: chord([add.s(1), add.s(2)], add.si(3).set(connection=to)),
}


@pytest.mark.parametrize("canvas", CANVASES.values(), ids=CANVASES)
def test_a_scheduled_canvas_with_a_connection_is_refused(add, delayq, connection, canvas):
    sig = canvas(add, connection)

    with pytest.raises(InvalidOption, match="a worker of the app sends the parts of a canvas"):
        delayq.schedule(sig, after=3000)

    assert delayq.counts().scheduled == 0


def switched(connection):
    """A connection that has turned to the second of its brokers."""
    connection.maybe_switch_next()
    return connection


OWN = {
    "a group's own": lambda add, sent: group(add.s(1)).apply_async(**sent),
    "a connection": lambda add, sent: add.apply_async(
        (1,), connection=Connection(add.app.conf.broker_url), **sent
    ),
    "beat's": lambda add, sent: add.apply_async(
        (1,), producer=Producer(add.app.connection_for_write(), auto_declare=False), **sent
    ),
    "a pool's": lambda add, sent: add.apply_async(
        (1,), connection=add.app.pool.acquire(block=True), **sent
    ),
}


@pytest.mark.parametrize("call", OWN.values(), ids=OWN)
@pytest.mark.parametrize("sent", [{"countdown": 3000}, {"delayq_after": 3000}])
def test_a_connection_to_the_app_s_own_broker_is_no_other(add, delayq, call, sent):
    call(add, sent)

    assert delayq.counts().scheduled == 1


def test_a_connection_that_failed_over_within_the_app_s_brokers_is_no_other(delayq_app, url):
    app = delayq_app(f"{url};{url[:-1]}2", delayq_url=url)
    app.send_task("t", connection=switched(app.connection_for_write()), delayq_after=3000)

    assert app.delayq.counts().scheduled == 1


BRINGS = {"exchange": Exchange("of-its-own"), "compression": "zlib"}


@pytest.mark.parametrize("name", BRINGS)
def test_a_producer_that_changes_messages_is_another_though_its_broker_is_the_app_s(
    add, delayq, name
):
    with add.app.connection_for_write() as own:
        producer = Producer(own, **{name: BRINGS[name]})
        add.apply_async((1,), producer=producer, countdown=3000)

        with pytest.raises(InvalidOption, match="one that publishes as the app's own do"):
            add.apply_async((1,), producer=producer, delayq_after=3000)

    assert delayq.counts().scheduled == 0


def test_a_pool_that_kombu_shares_with_an_app_of_one_broker_is_its_own(
    make_app, delayq_app, redis_server, redis
):
    url = redis_server.url()
    make_app(url).send_task("t")
    app = delayq_app(f"{url};redis://127.0.0.1:1/0", delayq_url=url)

    assert app.delayq.get(app.send_task("t", delayq_after=60).id)
