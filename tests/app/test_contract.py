"""A delivered message is the one that kombu would have pushed: its body, its list, its options.

Most calls are made three times: the store keeps the first message whole, and only the differences
of those that follow.
"""

import hashlib
import hmac
import importlib.util
import inspect
import json
from datetime import datetime, timezone
from itertools import product

import pytest
from celery import Celery
from celery.app.amqp import AMQP
from celery.app.task import Task
from kombu import Exchange, Producer, Queue, serialization
from kombu.compression import _aliases, encoders
from kombu.serialization import registry

from celery_delayq.errors import InvalidOption
from tests.app.options_of_celery import IN_MESSAGE, described
from tests.app.support import LONG_AGO, comparable, lists, received
from tests.support.shards import keys_of

pytestmark = pytest.mark.libraries


# Installed serializers only: msgpack and yaml are separate packages, and so are some codecs.
SERIALIZERS = ["json", "pickle", *filter(importlib.util.find_spec, ("yaml", "msgpack"))]
COMPRESSIONS = [
    name
    for name in ("zlib", "gzip", "bzip2", "lzma", "brotli", "zstd")
    if _aliases.get(name) in encoders()
]

ARGUMENTS = {
    "plain": ((1, "two"), {"three": [4, {"five": None}]}),
    "big-integers": ((2**53 + 1, 2**64, -(10**40), 10**14 + 1), {"n": 123456789012345678}),
    "floats": ((0.1, 1e308, 5e-324, -0.0, 1 / 3, 1e16), {}),
    "text": (("Grüße, 日本, \U0001f600, \x00\x1f\u2028 \"'\\/</",), {"ключ": "ß"}),
    "looks-like-the-end": (('"delayq_due": 0}}', "}}", '", "headers": {'), {"delayq_due": 7}),
    "empty": ((), {}),
    "lines": (("\n", "\r\n\n"), {"\n": "a\nb"}),
    "megabyte": (("é" * 500_000, "x" * 500_000), {}),
}


IDS = ["a-1", "b:2", "c_3.x"]


# Within the broker's Redis, a script moves a message; to another broker, a scanner publishes it.
HERE, THERE = "the broker's own Redis", "another Redis"


@pytest.fixture(params=[HERE, THERE])
def store(request, redis_server, redis):
    """The store's URL: the broker's database, or another one."""
    return redis_server.url() if request.param == HERE else redis_server.url(7)


def in_turn(rows):
    """Each row in one of the two stores."""
    return [(*row, (HERE, THERE)[place % 2]) for place, row in enumerate(rows)]


def here_and_there(names, there):
    """Each name in the broker's own Redis, and some of them in another one."""
    return [*((name, HERE) for name in names), *((name, THERE) for name in there)]


@pytest.fixture
def both(make_app, delayq_app, url, redis, store):
    """Messages that kombu pushed and that the store moved, for the same calls: {id: (key, raw)}."""

    def both(args=(), kwargs=None, conf=None, ids=IDS, own=lambda _: {}, **options):
        conf = {
            "accept_content": SERIALIZERS,
            "delayq_max_message": 10_000_000,
            **(conf or {}),
        }
        options = {"reply_to": "the-caller", **options}
        plain, held = make_app(url, **conf), delayq_app(url, delayq_url=store, **conf)
        for task_id in ids:
            plain.send_task("add", args, kwargs, task_id=task_id, **options, **own(task_id))
        by_kombu = by_id(redis)
        redis.flushall()
        for task_id in ids:
            held.send_task(
                "add", args, kwargs, task_id=task_id, delayq_at=LONG_AGO, **options, **own(task_id)
            )
        assert held.delayq.hand_over() == len(ids)
        return by_kombu, by_id(redis)

    return both


def by_id(redis):
    found = {}
    for key, messages in lists(redis).items():
        for raw in messages:
            found[json.loads(raw)["properties"]["correlation_id"]] = (key, raw)
    return found


def same(*found):
    one, other = (
        {task_id: (key, comparable(raw)) for task_id, (key, raw) in each.items()} for each in found
    )
    return one == other


# The body of a serializer other than JSON is bytes; the message has them in base64.
WRITTEN = [
    *((what, "json") for what in ARGUMENTS),
    *product(("plain", "big-integers", "text"), SERIALIZERS[1:]),
]


@pytest.mark.parametrize(("what", "serializer", "store"), in_turn(WRITTEN), indirect=["store"])
def test_a_message_is_what_kombu_would_have_pushed(both, what, serializer):
    args, kwargs = ARGUMENTS[what]
    if serializer == "msgpack" and what == "big-integers":
        args = (2**53 + 1, 2**63, -(2**63))  # all types that msgpack supports

    by_kombu, by_store = both(args, kwargs, {"task_serializer": serializer})

    assert same(by_kombu, by_store)


# Compressed content is bytes; the serializer they come from cannot be seen.
@pytest.mark.parametrize(
    ("serializer", "compression", "store"),
    in_turn([("pickle", "zlib"), *(("json", compression) for compression in COMPRESSIONS)]),
    indirect=["store"],
)
def test_a_compressed_message_is_what_kombu_would_have_pushed(both, serializer, compression):
    by_kombu, by_store = both(
        ("x" * 10_000, 2**60), None, serializer=serializer, compression=compression
    )

    assert same(by_kombu, by_store)
    assert json.loads(by_store["a-1"][1])["headers"]["compression"] == _aliases[compression]


def test_ids_of_any_kind_are_where_kombu_would_have_put_them(both):
    uuid = "0d5bd3c7-6d6c-4c3b-8d2a-5a52b0d0a3f1"
    ids = ["plain", "with blank", 'with "quotes" \\ and \n', "ü日", "}}", "0", uuid]

    for _ in range(2):
        by_kombu, by_store = both((1,), {}, ids=ids)

        assert same(by_kombu, by_store)
        assert by_store.keys() == set(ids)


LINK = {"task": "next", "args": [], "kwargs": {}, "options": {}}

# Each option that options_of_celery.py says is in the message; see the last section.
OPTIONS = {
    "priority": {"priority": 7},
    "priority that is no number": {"priority": "high"},
    "headers": {"headers": {"trace": "ü", "n": 2**60, "deep": {"list": [1.5, None]}}},
    "limits": {"time_limit": 30, "soft_time_limit": 20.5},
    "stamps": {"stamped_headers": ["who"], "who": "me"},
    "shadow": {"shadow": "another name"},
    "ignore_result": {"ignore_result": True},
    "transient": {"delivery_mode": 1},
    "chain": {"chain": [LINK]},
    "ids": {"root_id": "r", "parent_id": "p", "group_id": "g", "group_index": 3},
    "retries": {"retries": 4},
    "properties": {"message_id": "m", "app_id": "a", "user_id": "u", "type": "t"},
    "expires": {"expires": datetime(2100, 1, 1, tzinfo=timezone.utc)},
    "repr": {"argsrepr": 'hidden\n"}}', "kwargsrepr": ""},
    "own ids": {"root_id": "a-1", "parent_id": ""},
    "large headers": {"headers": {"x": "y" * 3000}},
    "hostile headers": {"headers": {"expires": "+5", "argsrepr": None, "a\nb": "\\u0000", "": ""}},
    "links": {"link": LINK, "link_error": [LINK]},
    "chord": {"chord": {**LINK, "chord_size": 1}},
    "replaced": {"replaced_task_nesting": 2},
    "number": {"timestamp": 1893456000, "cluster_id": "c"},
    "own ttl": {"expiration": 60},
    "route": {"route_name": "other", "exchange_type": "direct"},
    "queue": {"queue": "mail"},
    "declared": {"declare": [Queue("audit", Exchange("of-audits"))]},
    "caller": {"origin": "me", "now": datetime(2030, 1, 1, tzinfo=timezone.utc), "reply_to": "me"},
    "of the call": {"retry": False, "retry_policy": {"max_retries": 1}, "add_to_parent": False},
    "of the publisher": {"timeout": 5, "mandatory": True, "content_encoding": "utf-8"},
    "utf-8": {"headers": {"delayq_like": "x", "körper": "}}"}},
}


# A scanner that publishes a message reads none of these headers.
PROPERTIES = ["priority", "headers", "transient", "properties", "number", "expires", "utf-8"]


@pytest.mark.parametrize(("name", "store"), here_and_there(OPTIONS, PROPERTIES), indirect=["store"])
def test_options_of_a_call_are_in_the_message_as_kombu_would_have_put_them(both, name):
    by_kombu, by_store = both((1,), {}, **OPTIONS[name])

    assert same(by_kombu, by_store)


# The parts of a call that its own record holds; the rest is shared between records.
OWN = {
    "a trace": lambda one: {"headers": {"traceparent": f"00-{one}-01"}},
    "several": lambda one: {"headers": {"a": one, "deep": {"b": [one, None]}, "n": 2**60}},
    "none": lambda _: {"headers": {"trace": None}},
    "hostile": lambda one: {"headers": {f"a\n{one}": '"}}\\', "": "\n", "ü": '", "id": "x'}},
    "large": lambda one: {"headers": {"baggage": one * 2000}},
    "of a group": lambda one: {"group_id": one, "group_index": len(one)},
    "a trace and an expiry": lambda one: {"headers": {"trace": one}, **OPTIONS["expires"]},
    "a trace and a root": lambda one: {"headers": {"trace": one}, "root_id": one, "parent_id": "p"},
    "a trace and its logs": lambda one: {"headers": {"trace": one}, "kwargsrepr": f"'{one}\n'"},
}


@pytest.mark.parametrize(
    ("name", "store"), here_and_there(OWN, ["several", "hostile", "of a group"]), indirect=["store"]
)
def test_options_of_a_single_call_are_in_its_message_as_kombu_puts_them(both, name):
    by_kombu, by_store = both((1,), {}, own=OWN[name])

    assert same(by_kombu, by_store)


@pytest.mark.parametrize("encoding", ["base64", None])
def test_the_body_encoding_of_the_transport_is_kept(both, encoding):
    options = {"broker_transport_options": {"body_encoding": encoding}}

    by_kombu, by_store = both(("ü", 1), {}, options)

    assert same(by_kombu, by_store)


def test_only_one_header_is_added_and_it_is_the_due_time(both, url, store):
    by_kombu, by_store = both((1,))
    # A message that went through a lease also says which attempt it is, and of which delivery.
    of_a_lease = {"delayq_attempt", "delayq_hand_over"}
    own = {"delayq_due"} if store == url else {"delayq_due", *of_a_lease}
    for task_id in IDS:
        ours, theirs = json.loads(by_store[task_id][1]), json.loads(by_kombu[task_id][1])
        assert ours["headers"].keys() - theirs["headers"].keys() == own
        assert ours["headers"]["delayq_due"] == LONG_AGO * 1000


@pytest.mark.parametrize("task_id", [None, "a"], ids=["other ids", "one id"])
def test_every_message_has_a_delivery_tag_of_its_own(delayq_app, url, redis, task_id):
    app = delayq_app(url)
    for number in range(20):
        app.send_task("add", (number,), task_id=task_id, delayq_at=LONG_AGO)
        if task_id:  # it waits once at a time
            app.delayq.hand_over()

    app.delayq.hand_over()

    tags = {json.loads(raw)["properties"]["delivery_tag"] for raw in redis.lrange("celery", 0, -1)}
    assert len(tags) == 20


# A body leaves the queue as it entered it, for kombu's consumers and for signed messages.


KEY = b"key of this test"


def _sign(data):
    body = json.dumps(data).encode()
    return hmac.digest(KEY, body, hashlib.sha256) + b"\xff\x00\n" + body


def _verify(signed):
    signature, body = signed[:32], signed[35:]
    assert hmac.compare_digest(signature, hmac.digest(KEY, body, hashlib.sha256))
    return json.loads(body)


@pytest.fixture
def signed():
    """A serializer that signs its bytes, as Celery's `auth` does with certificates."""
    serialization.register("signed", _sign, _verify, "application/x-signed", "binary")
    yield "signed"
    serialization.unregister("signed")
    registry._disabled_content_types.discard("application/x-signed")


def test_a_signed_body_is_read_and_edited_and_its_signature_still_holds_after_the_hand_over(
    delayq_app, url, signed
):
    app = delayq_app(url, accept_content=["signed"], task_serializer="signed")
    app.send_task("add", ("ü", 2**70, 0.1), {"y": [None]}, task_id="a", delayq_at=LONG_AGO)
    assert app.delayq.get("a").args == ("ü", 2**70, 0.1)
    assert app.delayq.edit("a", args=["ü", 5])
    task = app.delayq.get("a")

    app.delayq.hand_over()

    assert (task.args, task.kwargs) == (("ü", 5), {"y": [None]})
    [message] = received(app)
    message.accept = {"application/x-signed"}
    assert message.payload[:2] == [[*task.args], task.kwargs]


OF_ALL = {
    "nothing": {},
    "limits": {"time_limit": 30, "shadow": "another name", "ignore_result": True, "retries": 4},
    "compressed": {"compression": "zlib"},
    "stamped": {"stamped_headers": ["who"], "who": "me"},
    "of this package": {"delayq_once": True, "delayq_capture": True},
}


@pytest.mark.parametrize("name", OF_ALL)
def test_options_that_all_calls_share_take_no_room_in_a_record(app, redis, name):
    for task_id in "ab":
        app.send_task("add", task_id=task_id, delayq_after=60, **OF_ALL[name])

    differing = redis.hget(keys_of("b")["records"], "b").split(b"\n")
    # From the end: the numbers in front may contain any byte.
    assert differing[-3:-1] == [b'"()"', b'"{}"']


# A message goes to the same list to which kombu would have pushed it.


STEPS = [
    pytest.param({}, id="default"),
    pytest.param({"priority_steps": list(range(10))}, id="every"),
    pytest.param({"priority_steps": [0, 5]}, id="two"),
    pytest.param({"priority_steps": [2, 4, 8]}, id="no-zero"),
    pytest.param({"sep": ":"}, id="sep"),
    pytest.param({"global_keyprefix": "shop-"}, id="prefix"),
    pytest.param({"global_keyprefix": "{s}:", "sep": "/", "priority_steps": [0, 1, 9]}, id="all"),
]
PRIORITIES = [None, *range(10), -1, 10, 255]
NAMES = ["mail", "a b", "kö/ü:{x}", "*?[a]", "9:x", "\x06\x16 3", "x" * 300, "日本"]


@pytest.fixture
def sent_to(make_app, delayq_app, url, redis, store):
    """The lists filled by the same calls, through plain Celery and through the store."""

    def both(options, calls):
        conf = {"broker_transport_options": options, "task_create_missing_queues": True}
        plain = make_app(url, **conf)
        for call in calls:
            plain.send_task("add", (1,), **call)
        by_kombu = {key: len(messages) for key, messages in lists(redis).items()}
        redis.flushall()
        held = delayq_app(url, delayq_url=store, **conf)
        for call in calls:
            held.send_task("add", (1,), delayq_at=LONG_AGO, **call)
        assert lists(redis) == {}
        assert held.delayq.hand_over() == len(calls)
        return by_kombu, {key: len(messages) for key, messages in lists(redis).items()}

    return both


@pytest.mark.parametrize("options", STEPS)
def test_every_priority_goes_to_the_list_that_kombu_pushes_to(sent_to, options):
    calls = [{} if priority is None else {"priority": priority} for priority in PRIORITIES]
    by_kombu, by_store = sent_to(options, calls)
    assert by_store == by_kombu
    assert len(by_kombu) > 1


@pytest.mark.parametrize("options", [{}, {"global_keyprefix": "p:"}], ids=["bare", "prefix"])
def test_odd_queue_names_reach_the_list_that_kombu_pushes_to(sent_to, options):
    calls = [{"queue": name, "priority": step} for name in NAMES for step in (0, 9)]
    by_kombu, by_store = sent_to(options, calls)
    assert by_store == by_kombu
    assert len(by_kombu) == len(calls)


@pytest.mark.parametrize("default", [None, 0, 6])
def test_the_default_priority_of_the_app_is_kept(make_app, delayq_app, url, redis, default):
    conf = {"task_default_priority": default}
    for app, options in ((make_app(url, **conf), {}), (delayq_app(url, **conf), {"delayq_at": 0})):

        @app.task(name="add")
        def add(x):
            return x

        add.apply_async((1,), **options)
    app.delayq.hand_over()

    [messages] = lists(redis).values()
    assert len(messages) == 2


# Each option of Celery's calls is tried in a scheduled one; one that Celery adds is noticed.


OF_PUBLISHING = {"immediate": True, "event_dispatcher": object()}


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
        "this module; if it is dropped, leave captured calls to Celery and refuse "
        "others (_OF_PUBLISHING in intercept.py). Then describe it in options_of_celery.py."
    )


def test_each_option_that_a_message_has_is_compared_with_celery_s():
    in_message = {name for name, said in described().items() if said == IN_MESSAGE}
    compared = {name for options in OPTIONS.values() for name in options}
    # Compared with values that differ in each call, or elsewhere.
    elsewhere = {"args", "kwargs", "task_id", "serializer", "compression", "correlation_id"}

    assert in_message <= compared | elsewhere
    assert OWN  # headers, ids and texts that no other call has


@pytest.mark.parametrize("name", OF_PUBLISHING)
def test_an_option_of_publishing_leaves_a_captured_call_to_celery(delayq_app, url, redis, name):
    app = delayq_app(url, delayq_capture_eta=True)

    app.send_task("t", countdown=3000, **{name: OF_PUBLISHING[name]})

    assert (app.delayq.counts().scheduled, len(lists(redis)[b"celery"])) == (0, 1)


@pytest.mark.parametrize("name", OF_PUBLISHING)
def test_an_option_of_publishing_is_refused_in_a_scheduled_call(app, delayq, name):
    with pytest.raises(InvalidOption, match=f"^{name} is .*; expected none: the call publishes no"):
        app.send_task("t", delayq_after=3000, **{name: OF_PUBLISHING[name]})

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
