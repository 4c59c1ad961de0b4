"""A dumped and loaded message equals the one that would have been sent without the dump."""

import json
from datetime import datetime, timedelta, timezone

import pytest
from celery import chain, chord, group
from kombu import Exchange, Queue

from tests.app.support import FAR, LONG_AGO, lists
from tests.app.test_contract import ARGUMENTS as AS_SENT
from tests.app.test_contract import OPTIONS as OF_CALLS
from tests.app.test_contract import SERIALIZERS
from tests.support.shards import SHARDS

pytestmark = pytest.mark.libraries

ACCEPT = {"accept_content": SERIALIZERS, "delayq_max_message": 10_000_000}
IDS = ("a-1", "b:2", "ü 3\n")

ARGUMENTS = {
    **{what: AS_SENT[what] for what in AS_SENT if what != "megabyte"},
    "large": (("é" * 50_000,), {}),
}
NAMES = (
    *("priority", "headers", "limits", "stamps", "links", "ids", "properties", "expires", "queue"),
    *("repr", "hostile headers", "large headers"),
)
OPTIONS = {
    "nothing": {},
    **{name: OF_CALLS[name] for name in NAMES},
    "expires after": {"expires": 60},
    "compressed": {"compression": "zlib"},
}


def sent(app, task_id, args=(1,), kwargs=None, **options):
    app.send_task("add", args, kwargs or {}, task_id=task_id, delayq_at=LONG_AGO, **options)


def pushed(app, redis):
    """The messages of the due tasks, by list, which is then empty."""
    assert app.delayq.hand_over() == len(IDS)
    found = {key: [json.loads(one) for one in some] for key, some in lists(redis).items()}
    for key in found:
        redis.delete(key)
    return found


def loaded_from(one, two):
    # As text, as if it came from a file.
    loaded = two.delayq.load([json.dumps(line) for line in one.delayq.dump()])
    assert loaded, loaded
    assert loaded.loaded == len(IDS)
    assert not [*two.delayq.check()]


@pytest.fixture
def moved(delayq_app, url, redis):
    """The same calls push the same messages with and without a dump: ``moved(call, **conf)``."""

    def moved(call, **conf):
        one, two = (delayq_app(url, delayq_prefix=p, **ACCEPT, **conf) for p in ("one", "two"))
        for task_id in IDS:
            call(one, task_id)
        loaded_from(one, two)
        assert pushed(two, redis) == pushed(one, redis)

    return moved


# With a serializer other than JSON, the body is text that nothing parses.
WRITTEN = [
    *((what, "json") for what in ARGUMENTS),
    *(("big-integers", serializer) for serializer in SERIALIZERS[1:]),
]


@pytest.mark.parametrize(("what", "serializer"), WRITTEN)
def test_arguments_of_any_kind(moved, what, serializer):
    args, kwargs = ARGUMENTS[what]
    if serializer == "msgpack" and what == "big-integers":
        args = (2**53 + 1, 2**63, -(2**63))  # all types that msgpack supports

    moved(lambda app, task_id: sent(app, task_id, args, kwargs), task_serializer=serializer)


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_any_kind(moved, name):
    moved(lambda app, task_id: sent(app, task_id, **OPTIONS[name]))


@pytest.mark.parametrize("encoding", ["base64", None])
def test_the_encoding_of_the_body(moved, encoding):
    options = {"body_encoding": encoding}
    moved(lambda app, task_id: sent(app, task_id, ("ü",)), broker_transport_options=options)


@pytest.mark.parametrize("kind", ["chain", "group", "chord"])
def test_a_canvas(moved, kind):
    def call(app, task_id):
        add = app.signature("add", args=(1, 2))
        made = {"chain": chain(add, add), "group": group(add, add), "chord": chord([add], add)}
        made[kind].set(task_id=task_id).delay_until(LONG_AGO)

    moved(call, result_backend="cache+memory://")


def test_tasks_of_a_bulk_share_a_template_here_and_there(delayq_app, url, redis):
    one, two = (delayq_app(url, delayq_prefix=name) for name in ("one", "two"))
    add = one.signature("add", queue="mail")
    one.delayq.schedule_many(add, [((number,), {}) for number in range(50)], at=FAR)

    assert two.delayq.load(one.delayq.dump()).loaded == 50

    sizes = [
        sum(redis.memory_usage(key, samples=0) for key in redis.keys(f"{{{name}:*records"))
        for name in ("one", "two")
    ]
    assert abs(sizes[1] - sizes[0]) < sizes[0] / 10
    assert {one.id: one.args for one in two.delayq.tasks()} == {
        one.id: one.args for one in one.delayq.tasks()
    }


def test_an_expiry_that_follows_the_due_time_still_does(delayq_app, url, redis):
    one, two = (delayq_app(url, delayq_prefix=name) for name in ("one", "two"))
    one.send_task("add", task_id="a", delayq_at=FAR, expires=60)

    two.delayq.load(one.delayq.dump())
    two.delayq.reschedule("a", FAR + 1000)

    message = json.loads(two.delayq.services.entries.find("a").message)
    expires = datetime.fromisoformat(message["headers"]["expires"])
    assert expires == datetime.fromtimestamp(FAR + 1000, timezone.utc) + timedelta(seconds=60)


TOPIC = Queue("news", Exchange("news", type="topic"), routing_key="news.#")
PLACES = {
    "prefix": ({}, {}),
    "global key prefix": ({}, {"broker_transport_options": {"global_keyprefix": "shop:"}}),
    "steps of priority": ({}, {"broker_transport_options": {"priority_steps": [0, 5]}}),
    "shards": ({"delayq_shards": 3}, {"delayq_shards": 5}),
    "fewer shards": ({"delayq_shards": 5}, {"delayq_shards": SHARDS}),
}


@pytest.fixture
def between(delayq_app, redis, url):
    """The same calls push the same messages by an app, and by one that is loaded from another.

    ``between(call, source, target)``: the configurations of the other app, and of these two. All
    have the same broker. It returns the lists that got them.
    """

    def between(call, source, target):
        plain, one, two = (
            delayq_app(url, delayq_prefix=prefix, **{**ACCEPT, **conf})
            for prefix, conf in (("plain", target), ("one", source), ("two", target))
        )
        for task_id in IDS:
            call(plain, task_id)
            call(one, task_id)
        without = without_their_own(pushed(plain, redis))
        loaded_from(one, two)
        through = without_their_own(pushed(two, redis))
        assert through == without
        return list(through)

    return between


def without_their_own(found):
    """The messages in a fixed order, without the parts in which two calls must differ."""
    for messages in found.values():
        for one in messages:
            one["properties"].pop("delivery_tag")
            one["properties"].pop("reply_to")
            for name in ("delayq_hand_over", "delayq_once"):
                one["headers"].pop(name, None)
        messages.sort(key=lambda one: one["headers"]["id"])
    return found


@pytest.mark.parametrize(
    ("place", "options"),
    [
        ("prefix", {}),
        ("global key prefix", {"priority": 7}),
        ("global key prefix", {"queue": "mail"}),
        ("steps of priority", {"priority": 7}),
        ("shards", {"queue": "mail"}),
        ("fewer shards", {}),
    ],
    ids=str,
)
def test_into_a_store_of_another_kind(between, place, options):
    assert between(lambda app, task_id: sent(app, task_id, **options), *PLACES[place])


# Another database of the same Redis is another store: its tasks are relayed to the broker.
@pytest.mark.parametrize("options", [{"priority": 7}, {"queue": "mail"}], ids=str)
@pytest.mark.parametrize("to", ["relay", "list"])
def test_from_lists_to_a_relay_and_back(between, redis_server, to, options):
    relayed, direct = {"delayq_url": redis_server.url(7)}, {}
    source, target = (direct, relayed) if to == "relay" else (relayed, direct)

    assert between(lambda app, task_id: sent(app, task_id, **options), source, target)


def test_a_message_to_an_exchange_is_relayed_as_without_the_dump(between, redis_server):
    queues = {"task_queues": [Queue("celery"), TOPIC]}

    assert between(
        lambda app, task_id: sent(app, task_id, exchange="news", routing_key="news.of.today"),
        queues,
        {**queues, "delayq_url": redis_server.url(7)},
    ) == [b"news"]


def test_a_queue_that_only_the_other_app_knows_is_told_of_by_id(delayq_app, redis_server, url):
    one = delayq_app(url, delayq_prefix="one")
    two = delayq_app(
        url, delayq_url=redis_server.url(7), task_queues=[Queue("celery")],
        task_create_missing_queues=False,
    )  # fmt: skip
    sent(one, "a", queue="mail")
    sent(one, "b")

    loaded = two.delayq.load(one.delayq.dump())

    assert (loaded.loaded, [str(one) for one in loaded.refused]) == (
        1,
        ["task 'a' was not loaded: this app has no queue 'mail'; add it to task_queues"],
    )
    assert not loaded


def test_a_list_of_no_queue_stays_that_list_and_cannot_be_relayed(delayq_app, redis_server, url):
    steps = {"broker_transport_options": {"priority_steps": [0, 4, 8]}}
    one = delayq_app(url, delayq_prefix="one", **steps)
    sent(one, "a", priority=5)
    changed = delayq_app(url, delayq_prefix="one")
    lines = [*changed.delayq.dump()]
    two, three = (
        delayq_app(url, delayq_prefix="two"),
        delayq_app(url, delayq_url=redis_server.url(7)),
    )

    assert two.delayq.load(lines).loaded == 1
    (why,) = three.delayq.load(lines).refused

    assert two.delayq.services.entries.find("a").record.destination == "celery\x06\x164"
    assert str(why) == (
        "task 'a' was not loaded: it goes to the list 'celery\\x06\\x164' of an unknown queue"
    )
