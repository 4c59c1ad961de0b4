"""A delivered message equals the one that kombu would have pushed, to the byte of its body.

Each call is made three times: the store keeps the first message whole, and only the differences
of those that follow.
"""

import importlib.util
import json
from datetime import datetime, timezone
from itertools import product

import pytest
from kombu import Exchange, Queue
from kombu.compression import _aliases, encoders

from tests.app.support import LONG_AGO, comparable, lists

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

# Each option that options_of_celery.py says is in the message; see test_every_option.py.
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
