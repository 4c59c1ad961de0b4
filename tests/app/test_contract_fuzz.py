"""Any call whatever: the message is the one that kombu would have pushed, whole or by template."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.app.support import LONG_AGO, comparable, lists

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


@pytest.fixture
def apps(make_app, delayq_app, url):
    return make_app(url), delayq_app(url)


@given(call=CALLS, ids=st.lists(IDS, min_size=3, max_size=3, unique=True))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_message_is_what_kombu_would_have_pushed(apps, redis_client, call, ids):
    plain, held = apps
    redis_client.flushall()
    for task_id in ids:
        plain.send_task("t", task_id=task_id, reply_to="r", **call)
    by_kombu = lists(redis_client)
    redis_client.flushall()
    for task_id in ids:
        held.send_task("t", task_id=task_id, reply_to="r", delayq_at=LONG_AGO, **call)

    assert held.delayq.hand_over() == 3

    by_store = lists(redis_client)
    assert {key: [*map(comparable, messages)] for key, messages in by_store.items()} == {
        key: [*map(comparable, messages)] for key, messages in by_kombu.items()
    }
