"""A tracer patches a step that every message passes: each call's message has its own trace."""

import functools
import json
import sys
from itertools import count
from types import FunctionType, MethodType

import celery.app.amqp
import pytest
from celery.app.amqp import AMQP
from kombu import Producer
from kombu.serialization import SerializerRegistry

from celery_delayq.operations.patches import places, touched
from tests.app.bulk import plain_task
from tests.app.support import ALL_WAYS, FAR, envelope, templates
from tests.support.shards import keys_of

pytestmark = pytest.mark.libraries

ITEMS = [((number,), {}) for number in range(5)]


class Tracer:
    """Adds a header with a trace that it uses only once."""

    def __init__(self):
        self._traces = count()
        self.given = []

    def trace(self):
        self.given.append(f"trace-{next(self._traces)}")
        return self.given[-1]

    def publish(self, publish, args, options):
        headers = {**(options.get("headers") or {}), "trace": self.trace()}
        return publish(*args, **{**options, "headers": headers})

    def _publish(self, publish, args, options):
        place = next(place for place, given in enumerate(args) if isinstance(given, dict))
        headers = {**args[place], "trace": self.trace()}
        return publish(*args[:place], headers, *args[place + 1 :], **options)

    def made(self, make, args, options):
        message = make(*args, **options)
        message.headers["trace"] = self.trace()
        return message

    as_task_v2 = create_task_message = made

    def send_task_message(self, send, args, options):
        args[2].headers["trace"] = self.trace()
        return send(*args, **options)


class Copier(Tracer):
    """Leaves the message unchanged, and adds a trace to a copy of it."""

    def made(self, make, args, options):
        message = make(*args, **options)
        return message._replace(headers={**message.headers, "trace": self.trace()})

    create_task_message = made


class Wrapper:
    """As wrapt's: it replaces the function, claims to be one, and binds like one."""

    def __init__(self, wrapped, trace):
        self.__wrapped__ = wrapped
        self._trace = trace

    __class__ = FunctionType

    def __get__(self, instance, owner):
        return Wrapper(self.__wrapped__.__get__(instance, owner), self._trace)

    def __call__(self, *args, **options):
        return self._trace(self.__wrapped__, args, options)


def function(wrapped, trace):
    @functools.wraps(wrapped)
    def traced(*args, **options):
        return trace(wrapped, args, options)

    return traced


def _create_task_message(self, *args, **options):
    # On the class it is a property, so the replacement has to choose the protocol.
    return self.task_protocols[self.app.conf.task_protocol](*args, **options)


ON_CLASSES = [
    (Producer, "publish"),
    (Producer, "_publish"),
    (AMQP, "as_task_v2"),
    (AMQP, "create_task_message"),
]
ON_AMQP = ["create_task_message", "send_task_message"]
PLACES = [*ON_CLASSES, *((None, name) for name in ON_AMQP)]
IDS = [f"{owner.__name__ if owner else 'app.amqp'}.{name}" for owner, name in PLACES]


@pytest.fixture(params=[Wrapper, function])
def patch(request, monkeypatch, app):
    """Put a tracer in a place: ``patch((Producer, "publish"))``."""

    def put(place, tracer):
        owner, name = place
        owner = owner or app.amqp
        wrapped = getattr(owner, name)
        if place == (AMQP, "create_task_message"):
            wrapped = _create_task_message
        monkeypatch.setattr(owner, name, request.param(wrapped, getattr(tracer, name)))
        return tracer

    return put


@pytest.fixture(params=PLACES, ids=IDS)
def tracer(request, patch):
    return patch(request.param, Tracer())


def traces(delayq, ids):
    return [envelope(delayq, task_id).headers["trace"] for task_id in ids]


def test_each_single_call_carries_its_own_trace(app, delayq, tracer):
    task = plain_task(app)

    ids = [way(task, 1).id for way in ALL_WAYS.values() for _ in range(2)]

    assert traces(delayq, ids) == tracer.given
    assert len(set(tracer.given)) == 2 * len(ALL_WAYS)


def test_each_item_of_a_bulk_carries_its_own_trace(app, delayq, tracer):
    bulk = delayq.schedule_many(plain_task(app), ITEMS, after=60)

    assert traces(delayq, bulk.ids) == tracer.given
    assert len(set(tracer.given)) == len(ITEMS)


def test_calls_that_differ_by_their_traces_share_a_template(app, delayq, redis, tracer):
    task = plain_task(app)

    for _ in range(5):
        task.delay_for(60, 1)
    delayq.schedule_many(task, ITEMS, after=60)

    # With the first, it is unknown whether another one follows.
    assert templates(redis) == (1, 4 + len(ITEMS))


@pytest.mark.parametrize(
    "options",
    [
        lambda number: {"headers": {"traceparent": f"{number:055}", "deep": {"list": [number]}}},
        lambda number: {"group_id": f"{number:036}", "group_index": number},
    ],
    ids=["headers", "group"],
)
def test_headers_of_a_call_add_at_most_their_own_length_to_its_record(app, delayq, redis, options):
    task = plain_task(app)
    for number in range(5):
        plain = task.apply_async((1,), delayq_at=FAR)
        other = task.apply_async((1,), delayq_at=FAR, **options(number))

    headers, usual = (envelope(delayq, one.id).headers for one in (other, plain))
    said = {name: value for name, value in headers.items() if usual.get(name, usual) != value}
    for name in ("id", "root_id"):
        del said[name]
    sizes = [redis.hstrlen(keys_of(one.id)["records"], one.id) for one in (other, plain)]
    assert sizes[0] - sizes[1] <= len(json.dumps(said))


def test_a_message_that_a_tracer_copied_is_scheduled(app, delayq, patch):
    tracer = patch((None, "create_task_message"), Copier())
    task = plain_task(app)

    ids = [way(task, 1).id for way in ALL_WAYS.values()]

    assert traces(delayq, ids) == tracer.given


def test_a_tracer_that_comes_while_a_bulk_runs_sees_the_rest_of_it(app, delayq, patch):
    tracer = Tracer()
    items = [((number,), {}) for number in range(250)]

    def come(bulk):
        if not tracer.given and len(bulk.ids) < len(items):
            patch((Producer, "publish"), tracer)

    bulk = delayq.schedule_many(plain_task(app), items, after=60, progress=come)

    assert traces(delayq, bulk.ids[200:]) == tracer.given


def test_nothing_is_touched_and_a_patch_of_anything_on_the_way_shows(app, monkeypatch):
    task = plain_task(app)
    way = app, task, task.s()
    assert touched(*way) is None

    for place in list(places(*way)):
        with monkeypatch.context() as patched:
            patched.setattr(place.owner, place.name, Wrapper(getattr(*place[:2]), None))
            assert touched(*way), place
    assert touched(*way) is None


def _other_code(self, exchange, delivery_mode=None, **_):
    return str(exchange), 2


@pytest.mark.parametrize("mark", [("__code__", _other_code.__code__), ("__wrapped_by__", "x")])
def test_a_function_that_was_rewritten_in_its_place_makes_every_message(
    app, delayq, monkeypatch, made_by_celery, mark
):
    monkeypatch.setattr(Producer._delivery_details, *mark, raising=False)

    delayq.schedule_many(plain_task(app), ITEMS, after=60)

    assert len(made_by_celery) == len(ITEMS)


def test_a_serializer_that_is_watched_sees_every_body(app, delayq, monkeypatch):
    seen, dumps = [], SerializerRegistry.dumps

    def watched(self, data, serializer=None):
        seen.append(data)
        return dumps(self, data, serializer=serializer)

    registry = sys.modules["kombu.messaging"].dumps.__self__
    monkeypatch.setattr("kombu.messaging.dumps", MethodType(watched, registry))

    delayq.schedule_many(plain_task(app), ITEMS, after=60)

    assert len(seen) == len(ITEMS)


def test_a_text_for_logs_that_hides_secrets_hides_each(app, delayq, monkeypatch):
    saferepr = celery.app.amqp.saferepr

    def discreet(values, *args, **options):
        return saferepr(values, *args, **options).replace("secret", "***")

    monkeypatch.setattr(celery.app.amqp, "saferepr", discreet)
    items = [(("open",), {}), (("open",), {}), (("secret",), {})]

    bulk = delayq.schedule_many(plain_task(app), items, after=60)

    assert envelope(delayq, bulk.ids[2]).headers["argsrepr"] == "('***',)"


@pytest.mark.parametrize(
    ("broker", "kind"),
    [(None, "redis"), ("amqp://localhost:1//", "amqp"), ("memory://", "memory")],
)
def test_a_tracer_is_told_what_kind_of_broker_the_message_is_for(
    delayq_app, url, monkeypatch, broker, kind
):
    app, told, publish = delayq_app(broker or url, delayq_url=url), [], Producer.publish

    def traced(self, *args, **options):
        # As Sentry's SDK checks it.
        told.append(self.connection.transport.driver_type)
        return publish(self, *args, **options)

    monkeypatch.setattr(Producer, "publish", traced)

    app.send_task("traced", delayq_at=FAR)

    assert told == [kind]


def test_of_two_messages_that_do_not_agree_no_other_is_made(
    app, delayq, monkeypatch, made_by_celery
):
    # Messages do not pass it, so only the two messages can show it.
    origins = count()
    monkeypatch.setattr(celery.app.amqp, "anon_nodename", lambda: f"gen{next(origins)}")

    bulk = delayq.schedule_many(plain_task(app), ITEMS, after=60)

    found = [envelope(delayq, task_id).headers["origin"] for task_id in bulk.ids]
    assert found == [f"gen{number}" for number in range(len(ITEMS))]
    assert len(made_by_celery) == len(ITEMS)
