"""Any call: its message equals the one that kombu would have pushed, or nothing is written."""

import importlib.util
from datetime import timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from celery_delayq.errors import DelayQError
from tests.app.support import FAR, LONG_AGO, comparable, lists

pytestmark = pytest.mark.libraries

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
IDS = st.one_of(st.uuids().map(str), TEXT.filter(lambda text: 0 < len(text.encode()) <= 512))
CALLS = st.fixed_dictionaries(
    {"args": st.lists(VALUES, max_size=3), "kwargs": st.dictionaries(TEXT, VALUES, max_size=3)},
    optional={
        "priority": st.integers(-3, 12),
        "headers": st.dictionaries(TEXT.map("x{}".format), VALUES, max_size=3),
        "time_limit": st.integers(1, 10**6),
        "shadow": TEXT,
        "root_id": TEXT,
        "parent_id": TEXT,
        "argsrepr": TEXT,
        "compression": st.just("zlib"),
        "ignore_result": st.booleans(),
        "queue": TEXT.map("q{}".format),
    },
)

# From here on, any value that a caller may pass, sensible or not.
ANY_TEXT = TEXT | st.sampled_from(
    ["\udcff", "", "\n", "\x00", "\x1b[2J", "{delayq:0}:records", "}:", "a" * 10_000, "\u2028"]
)
HOSTILE = st.recursive(
    st.one_of(
        VALUES,
        ANY_TEXT,
        st.floats(),
        st.binary(max_size=20),
        st.datetimes(),
        st.sampled_from([object(), Exception, Decimal("0.1"), UUID(int=7), timedelta(1)]),
        st.sampled_from([{1, 2}, (1, (2,)), 10**400, {1: 2, None: 3}]),
    ),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(ANY_TEXT, inner, max_size=2),
    max_leaves=4,
)
EXPIRES = st.one_of(
    st.integers(-5, 5),
    st.integers(-(10**12), 10**12),
    st.floats(),
    st.datetimes(timezones=st.none() | st.just(timezone.utc)),
    st.sampled_from(["2100-01-01T00:00:00+00:00", "tomorrow", "", True, Decimal(5), [5]]),
)
LINKS = st.lists(st.tuples(ANY_TEXT, st.lists(VALUES, max_size=2)), min_size=1, max_size=2)
ANY_ARGUMENTS = {
    "args": st.lists(HOSTILE, max_size=2) | HOSTILE,
    "kwargs": st.dictionaries(ANY_TEXT, HOSTILE, max_size=2) | HOSTILE,
    "headers": st.dictionaries(ANY_TEXT, HOSTILE, max_size=3) | HOSTILE,
    "retries": st.integers(0, 5) | HOSTILE,
    "expires": EXPIRES,
    "queue": ANY_TEXT | st.just(5),
    "delivery_mode": st.sampled_from([1, 2, "persistent", "nonsense"]),
    "serializer": st.sampled_from(["json", "pickle", "yaml", "msgpack", "nonsense", 5]),
    "compression": st.sampled_from(["zlib", "bzip2", "nonsense", "", 5]),
    "link": LINKS,
    "link_error": LINKS,
    **dict.fromkeys(
        (
            *("priority", "time_limit", "soft_time_limit", "shadow", "root_id", "parent_id"),
            *("group_id", "group_index", "argsrepr", "kwargsrepr", "ignore_result"),
            *("replaced_task_nesting", "some_property"),
        ),
        HOSTILE,
    ),
}


@st.composite
def any_calls(draw):
    """A sensible call, of which up to three arguments may be anything."""
    call = draw(CALLS)
    for name in draw(st.lists(st.sampled_from(sorted(ANY_ARGUMENTS)), max_size=3)):
        call[name] = draw(ANY_ARGUMENTS[name])
    return call


# Celery replaces a false one.
ANY_IDS = st.one_of(IDS, ANY_TEXT, st.integers(), st.binary(), st.uuids()).filter(bool)


@pytest.fixture
def apps(make_app, delayq_app, url):
    return make_app(url), delayq_app(url)


def pushed(redis):
    """The messages of each list, for comparison."""
    return {key: [*map(comparable, messages)] for key, messages in lists(redis).items()}


@given(call=CALLS, ids=st.lists(IDS, min_size=3, max_size=3, unique=True))
def test_any_message_is_what_kombu_would_have_pushed(apps, redis_client, call, ids):
    plain, held = apps
    redis_client.flushall()
    for task_id in ids:
        plain.send_task("t", task_id=task_id, reply_to="r", **call)
    by_kombu = pushed(redis_client)
    redis_client.flushall()
    for task_id in ids:
        held.send_task("t", task_id=task_id, reply_to="r", delayq_at=LONG_AGO, **call)

    assert held.delayq.hand_over() == 3

    assert pushed(redis_client) == by_kombu


@pytest.fixture
def both(make_app, delayq_app, redis_server, url):
    """An app without DelayQ, its database, and an app with it."""
    accept = ["json", "pickle", *filter(importlib.util.find_spec, ("yaml", "msgpack"))]
    plain = make_app(redis_server.url(3), accept_content=accept)
    return plain, redis_server.client(db=3), delayq_app(url, accept_content=accept)


def sent(app, name, call, **more):
    """Make one call; return its error, or ``None``."""
    call = dict(call)
    for option in ("link", "link_error"):
        if option in call:
            call[option] = [app.signature(task, args) for task, args in call[option]]
    try:
        app.send_task(name, **call, **more)
    except Exception as error:
        return error
    return None


def dumped(redis):
    return {key: redis.dump(key) for key in redis.keys("*")}


def popped(redis):
    """The same, taken away; another test checks when an expiry begins."""
    found = pushed(redis)
    for key, messages in found.items():
        redis.delete(key)
        for message in messages:
            message["headers"].pop("expires", None)
    return found


@given(name=ANY_TEXT, call=any_calls(), ids=st.lists(ANY_IDS, min_size=2, max_size=2))
def test_an_accepted_call_arrives_and_a_refused_one_writes_nothing(
    both, redis_client, name, call, ids
):
    plain, plain_redis, held = both
    redis_client.flushall()
    call["reply_to"] = "r"  # another one in each app, by default
    held.send_task("there before", task_id="before", delayq_at=FAR)

    for task_id in ids:
        before = dumped(redis_client)
        plain_redis.flushdb()
        # A UUID is text in an app with a DelayQ.
        text = str(task_id) if isinstance(task_id, UUID) else task_id
        refused = sent(plain, name, call, task_id=text)

        error = sent(held, name, call, task_id=task_id, delayq_at=LONG_AGO)

        if error is not None:
            event("refused, as by Celery" if refused else f"refused: {type(error).__name__}")
            assert refused or isinstance(error, DelayQError), (error, refused)
            assert dumped(redis_client) == before
            continue
        event("accepted")
        assert refused is None
        assert held.delayq.hand_over() == 1
        assert popped(redis_client) == popped(plain_redis)


ITEMS = st.lists(
    st.tuples(
        ANY_ARGUMENTS["args"], ANY_ARGUMENTS["kwargs"], st.just(LONG_AGO) | ANY_TEXT, IDS | ANY_TEXT
    ),
    max_size=5,
    unique_by=lambda item: item[3],
)
OPTIONS = st.fixed_dictionaries(
    {}, optional={name: ANY_ARGUMENTS[name] for name in ("headers", "queue", "serializer")}
)


@given(items=ITEMS, options=OPTIONS)
def test_each_item_of_a_bulk_arrives_or_is_refused_and_not_written(
    both, redis_client, items, options
):
    plain, plain_redis, held = both
    redis_client.flushall()
    held.send_task("there before", task_id="before", delayq_at=FAR)
    before = dumped(redis_client)
    signature = held.signature("t").set(reply_to="r", **options)

    try:
        bulk = held.delayq.schedule_many(signature, items)
    except Exception as error:
        event(f"refused as a whole: {type(error).__name__}")
        assert dumped(redis_client) == before
        return

    event(f"{bulk.scheduled} of {len(items)}")
    by_celery = plain.signature("t").set(reply_to="r", **options)
    for (args, kwargs, _, task_id), taken in zip(items, bulk.ids, strict=True):
        if taken is not None:
            by_celery.apply_async(args, kwargs, task_id=task_id)
    assert held.delayq.hand_over() == bulk.scheduled
    assert popped(redis_client) == popped(plain_redis)
