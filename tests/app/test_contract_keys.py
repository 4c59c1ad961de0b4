"""A message goes to the same list to which kombu would have pushed it."""

import pytest

from tests.app.support import LONG_AGO, lists

pytestmark = pytest.mark.libraries

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


@pytest.fixture(params=["the broker's own Redis", "another Redis"])
def store(request, redis_server, redis):
    """The store's URL: the broker's database, or another one."""
    return redis_server.url() if "own" in request.param else redis_server.url(7)


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
