"""The state that an isolated test has for itself, and its restoration afterwards."""

import sys
from types import SimpleNamespace

import pytest
from celery import Celery
from celery.backends import cache
from kombu import pools
from kombu.transport import memory

from celery_delayq import DelayQ
from celery_delayq.contrib.testing import isolated, isolation
from celery_delayq.core import clock
from celery_delayq.core.servers.pool import PerProcess
from celery_delayq.errors import CannotIsolate, LibraryChanged, NoDelayQ, StoreUnavailable
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.libraries


def number_of(app):
    """The number of a task that the test adds to an app without tasks."""

    @app.task(name="number")
    def number(value):
        return value

    return number


def everything(app):
    """The state that an isolation sets aside, as far as the app and this process have it."""
    return {
        "conf": dict(app.conf.changes),
        "urls": (app.conf.broker_url, app.conf.result_backend, app.conf.get("delayq_url")),
        "pools": (app._pool, app.amqp._producer_pool),
        "kombu's": (list(dict.keys(pools.connections)), list(dict.keys(pools.producers))),
        "backend": id(app.backend),
        "queues": (list(app.amqp.queues), app.amqp.queues._consume_from),
        "traces": [task.__trace__ for task in app.tasks.values()],
        "now": "now" in vars(app),
        "clock": clock.utc_now,
        "memory": {name: list(queue.queue) for name, queue in memory.Channel.queues.items()},
        "bound": dict(memory.Transport.global_state.bindings),
        "results": id(cache._DUMMY_CLIENT_CACHE),
        "store": (app.delayq.services.endpoint, app.delayq.services.settings),
        "scripts": type(app.delayq.services.scripts[0]),
    }


def test_no_call_waits_for_replicas_unless_the_test_says_so(shop, caplog):
    shop.app.conf.delayq_wait_replicas = (1, 30)
    with isolated(shop.app):
        assert shop.remind.delay_for(60, 1).replicas is None
    assert caplog.messages == []
    with isolated(shop.app, delayq_wait_replicas=(1, 30)):
        assert shop.remind.delay_for(60, 1).replicas == 0


def test_the_redis_of_a_test_is_not_told_the_store_s_login(shop):
    shop.app.conf.delayq_url = "redis://h"
    provider = SimpleNamespace(asked=[])
    provider.get_credentials = lambda: provider.asked.append("asked") or ("user", "s3cret")
    shop.app.conf.delayq_transport_options = {"credential_provider": provider}
    with isolated(shop.app):
        assert shop.remind.delay_for(60, 1).id
    assert provider.asked == []


def test_after_an_isolated_test_all_is_as_before(shop):
    before = everything(shop.app)

    with isolated(shop.app) as delayq:
        shop.remind.s(1).set(queue="mail").delay_for(60)
        shop.remind.delay(2)
        delayq.advance(minutes=1)
        assert len(delayq.run_due()) == 2
        with delayq.worker(queues=["mail"]):
            pass
        shop.app.conf.delayq_history = 5
        assert everything(shop.app) != before

    assert everything(shop.app) == before


def test_messages_and_results_in_memory_are_there_again(make_app):
    app = make_app("memory://", "cache+memory://", delayq_url="redis://127.0.0.1:1/0")
    DelayQ(app)
    number = number_of(app)
    app.send_task("number", (1,), task_id="earlier")
    app.backend.store_result("earlier", "kept", "SUCCESS")
    before = everything(app)

    with isolated(app) as delayq:
        assert delayq.run_due() == []
        assert app.AsyncResult("earlier").state == "PENDING"
        number.delay(2)

    assert everything(app) == before
    assert app.AsyncResult("earlier").get(timeout=30) == "kept"
    with app.connection() as connection:
        queue = app.amqp.queues["celery"](connection.default_channel)
        assert queue.get().headers["id"] == "earlier"
        assert queue.get() is None


def test_two_tests_see_nothing_of_each_other(shop):
    for _ in range(2):
        with isolated(shop.app) as delayq:
            assert delayq.scheduled() == []
            assert delayq.run_due() == []
            assert shop.app.AsyncResult("ran").state == "PENDING"
            shop.remind.s(1).set(task_id="ran").delay_for(60)
            delayq.advance(minutes=1)
            assert [result.value for result in delayq.run_due()] == ["reminded 1"]
            delayq.schedule(shop.remind.s(2), after=3600, key="k", tags=["t"])
            shop.remind.delay(3)
            assert delayq.hand_over() == 0


def test_the_app_s_own_delayq_has_the_same_store(shop):
    with isolated(shop.app) as delayq:
        scheduled = shop.delayq.schedule(shop.remind.s(1), after=60)
        assert [task.id for task in delayq.scheduled()] == [scheduled.id]
        assert shop.app.delayq is shop.delayq


def test_variables_that_go_before_settings_are_out_of_sight(shop, monkeypatch):
    for name in ("CELERY_BROKER_URL", "CELERY_BROKER_WRITE_URL", "CELERY_RESULT_BACKEND"):
        monkeypatch.setenv(name, "redis://127.0.0.1:1/5")

    with isolated(shop.app) as delayq:
        assert shop.app.connection_for_write().transport.driver_type == "memory"
        shop.remind.delay(1)
        assert delayq.run_due()[0].get() == "reminded 1"
        assert shop.app.AsyncResult(delayq.run_due() or "x").state == "PENDING"

    assert shop.app.conf.broker_write_url == "redis://127.0.0.1:1/5"


@pytest.mark.parametrize(
    ("settings", "namespace"),
    [
        ({"CELERY_BROKER_URL": "redis://127.0.0.1:1/5", "CELERY_DELAYQ_PREFIX": "x"}, "CELERY"),
        ({"BROKER_URL": "redis://127.0.0.1:1/5", "CELERY_RESULT_BACKEND": "rpc://"}, None),
    ],
)
def test_settings_of_another_spelling_are_replaced_as_well(make_app, settings, namespace):
    app = Celery("spelled", set_as_current=False)
    app.config_from_object(settings, namespace=namespace)
    app.conf.update(settings)
    DelayQ(app)
    number = number_of(app)
    with isolated(app) as delayq:
        number.delay_for(60, 7)
        delayq.advance(minutes=1)
        assert [result.get() for result in delayq.run_due()] == [7]
    assert app.conf.broker_url == "redis://127.0.0.1:1/5"
    app.close()


def test_an_isolated_app_s_own_broker_and_backend_can_stay(make_app, redis_server, redis_url):
    app = make_app(redis_url, redis_server.url(1))
    DelayQ(app)
    number = number_of(app)

    with isolated(app, broker=None, backend=None) as delayq:
        result = number.delay_for(60, 7)
        delayq.advance(minutes=1)
        assert [ran.value for ran in delayq.run_due()] == [7]
        with delayq.worker():
            assert number.delay(8).get(timeout=30) == 8

    assert app.AsyncResult(result.id).get(timeout=30) == 7


def test_of_a_real_server_only_its_own_keys_are_touched(shop, redis_server, redis_url):
    with redis_server.client() as client:
        client.mset({"mine": 1, "{delayq:0}:meta-of-mine": 2})
        with isolated(shop.app, redis=redis_url) as delayq:
            delayq.schedule(shop.remind.s(1), after=60, key="k", tags=["t"])
            shop.remind.delay_for(3600, 2)
            delayq.advance(minutes=1)
            assert len(delayq.run_due()) == 1
            prefix = shop.app.conf.delayq_prefix
            names = {key.decode() for key in client.scan_iter()}
            own = {name for name in names if name.startswith("{" + prefix)}
            assert own
            assert names - own == {"mine", "{delayq:0}:meta-of-mine"}
        assert set(client.scan_iter()) == {b"mine", b"{delayq:0}:meta-of-mine"}


def test_the_environment_may_name_the_server(shop, redis_server, redis_url, monkeypatch):
    monkeypatch.setenv(isolation.VARIABLE, redis_url)
    with isolated(shop.app):
        assert shop.app.delayq.services.endpoint.port == redis_server.port


def test_an_app_without_a_delayq_has_none_to_isolate(make_app):
    with pytest.raises(NoDelayQ), isolated(make_app()):
        pass


def test_an_app_cannot_be_isolated_twice(shop, delayq):
    with pytest.raises(CannotIsolate) as raised, isolated(shop.app):
        pass
    assert str(raised.value) == "the app 'tests' is isolated already; one test at a time"


@pytest.mark.parametrize("missing", ["fakeredis", "lupa"])
def test_without_fakeredis_one_is_told_what_to_install(shop, monkeypatch, missing):
    before = everything(shop.app)
    monkeypatch.setattr(isolation, "_served", PerProcess(isolation._serve))
    monkeypatch.delenv(isolation.VARIABLE, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)

    with pytest.raises(CannotIsolate) as raised, isolated(shop.app):
        pass

    assert str(raised.value) == (
        "an isolated store needs fakeredis with Lua: pip install 'celery_delayq[testing]'; or name "
        "a Redis by the environment's DELAYQ_TEST_REDIS, pytest's --delayq-redis, or redis="
    )
    assert everything(shop.app) == before
    assert isolation._isolated == set()


def test_a_server_that_went_away_spoils_no_other_test(shop):
    before = everything(shop.app)

    def loses(server):
        with isolated(shop.app, redis=server.url()):
            shop.remind.delay_for(60, 1)
            server.stop()

    with RedisServer() as server, pytest.raises(StoreUnavailable, match="refused"):
        loses(server)

    assert everything(shop.app) == before
    with isolated(shop.app) as delayq:
        assert delayq.scheduled() == []


def test_a_part_of_a_library_that_is_gone_is_named_in_one_sentence(shop, monkeypatch):
    gone = pytest.raises(LibraryChanged, match=r"memory:Transport\.global_state is gone")
    with monkeypatch.context() as patch:
        patch.delattr(memory.Transport, "global_state")
        with gone, isolated(shop.app):
            pass
