"""The store cannot be reached: the error of `apply_async`, after as many tries as configured."""

import time

import pytest
import redis
from kombu.exceptions import OperationalError

from celery_delayq import DelayQError, InvalidDueTime
from celery_delayq.errors import InvalidOption, StoreUnavailable
from tests.app.support import FAR, lists
from tests.support.network import QUICK
from tests.support.shards import total
from tests.support.waiting import PATIENCE

pytestmark = [pytest.mark.core, pytest.mark.libraries]

FOREVER = {"max_retries": None, "interval_start": 0.01, "interval_step": 0, "interval_max": 0.01}


@pytest.fixture
def app(delayq_app, hanging_up):
    return delayq_app(f"redis://127.0.0.1:{hanging_up.port}/0", task_publish_retry_policy=QUICK)


@pytest.mark.parametrize(
    ("options", "conf", "attempts"),
    [
        ({"retry": False}, {}, 1),
        ({"retry_policy": {"max_retries": 0}}, {}, 1),
        ({"retry_policy": {"max_retries": 1}}, {}, 2),
        ({"retry": True, "retry_policy": {"max_retries": 4}}, {}, 5),
        ({"retry": False, "retry_policy": {"max_retries": 4}}, {}, 1),
        ({}, {}, 4),
        ({}, {"task_publish_retry_policy": {**QUICK, "max_retries": 2}}, 3),
        ({}, {"task_publish_retry": False}, 1),
    ],
    ids=repr,
)
def test_as_many_attempts_are_made_as_the_policy_of_the_call_or_the_app_allows(
    add, hanging_up, options, conf, attempts
):
    add.app.conf.update(conf)

    with pytest.raises(OperationalError) as caught:
        add.s(1).set(**options).delay_for(60)

    assert hanging_up.connections == attempts
    assert isinstance(caught.value, (DelayQError, StoreUnavailable))
    assert isinstance(caught.value.__cause__, redis.ConnectionError)
    assert str(caught.value).startswith("schedule failed: ")


def test_the_policy_of_a_call_does_not_stay_with_the_app(add, app, hanging_up):
    before = dict(app.conf.task_publish_retry_policy)

    with pytest.raises(OperationalError):
        add.s(1).set(retry_policy={"max_retries": 0}).delay_for(60)

    assert dict(app.conf.task_publish_retry_policy) == before


@pytest.mark.parametrize(
    "step",
    [
        lambda delayq: delayq.get("a"),
        lambda delayq: delayq.cancel("a"),
        lambda delayq: delayq.reschedule("a", FAR),
        lambda delayq: delayq.state("a"),
        lambda delayq: delayq.counts(),
        lambda delayq: list(delayq.tasks()),
    ],
)
def test_every_other_step_is_tried_once_and_raises_the_same(app, delayq, hanging_up, step):
    with pytest.raises(OperationalError):
        step(delayq)
    assert hanging_up.connections == 1


WRONG = [
    (InvalidDueTime, lambda task: task.delay_until("tomorrow", 1)),
    (InvalidDueTime, lambda task: task.delay_for(float("nan"), 1)),
    (InvalidDueTime, lambda task: task.s(1).delay_until(9e15)),
    (InvalidDueTime, lambda task: task.apply_async((1,), delayq_at="tomorrow")),
    (InvalidDueTime, lambda task: task.apply_async((1,), delayq_after=True)),
    (InvalidDueTime, lambda task: task.app.delayq.reschedule("a", "tomorrow")),
    (TypeError, lambda task: task.delay_for(60, 1, 2, 3)),
    (TypeError, lambda task: task.delay_for(60)),
    (InvalidOption, lambda task: task.apply_async((1,), delayq_when=5)),
    (InvalidOption, lambda task: task.app.send_task("t", task_id="x" * 600, delayq_after=5)),
    (InvalidOption, lambda task: task.app.delayq.schedule(task.s(1))),
    (InvalidOption, lambda task: task.app.delayq.cancel("")),
    (InvalidOption, lambda task: task.app.delayq.tasks(limit=-1)),
]


@pytest.mark.parametrize(("error", "call"), WRONG)
def test_a_wrong_call_is_refused_without_a_connection_to_redis_or_the_result_backend(
    app, add, hanging_up, error, call
):
    policy = {"retry_policy": {**QUICK, "max_retries": 0, "timeout": 1}}
    app.conf.update(result_backend=app.conf.broker_url, result_backend_transport_options=policy)
    assert app.backend.connparams["port"] == hanging_up.port

    with pytest.raises(error):
        call(add)
    assert hanging_up.connections == 0


def test_a_call_whose_answer_was_lost_is_repeated_and_holds_one_entry(swallowing, through, redis):
    proxy = swallowing(b"the-id", times=2)
    app = through(proxy)

    app.send_task("t", (1,), task_id="the-id", delayq_at=FAR)

    assert proxy.swallowed == 2
    assert app.delayq.counts().scheduled == 1
    assert total(redis.zcard, "due") == total(redis.hlen, "records") == 1
    assert app.delayq.cancel("the-id")


def test_an_answer_that_stays_lost_raises_and_leaves_a_whole_entry_or_none(
    swallowing, through, redis, passing, plain
):
    proxy = swallowing(b"the-id", times=99)
    app = through(proxy)

    with passing(proxy), pytest.raises(OperationalError):
        app.send_task("t", (1,), task_id="the-id", delayq_at=0)

    assert plain.delayq.get("the-id").args == (1,)
    assert plain.delayq.hand_over() == 1
    assert sum(map(len, lists(redis).values())) == 1


@pytest.fixture
def plain(swallowing, through):
    """An app that is asked through a proxy that swallows nothing."""
    return through(swallowing(b"\xff is in no request"))


def test_a_redis_that_comes_back_is_used_again(delayq_app, start_redis):
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    app = delayq_app(server.url(), task_publish_retry_policy={**QUICK, "max_retries": 0})
    app.send_task("t", task_id="a", delayq_at=FAR)
    server.kill()
    with pytest.raises(OperationalError):
        app.send_task("t", task_id="b", delayq_at=FAR)

    server.start()

    app.send_task("t", task_id="c", delayq_at=FAR)
    assert [task.id for task in app.delayq.tasks()] == ["a", "c"]


@pytest.fixture
def within():
    """The seconds that a call took to raise ``OperationalError``."""

    def seconds(call):
        began = time.monotonic()
        with pytest.raises(OperationalError):
            call()
        return time.monotonic() - began

    return seconds


@pytest.mark.parametrize("connected", [True, False])
def test_a_redis_that_hangs_ends_a_call_in_its_time_whatever_the_policy(
    delayq_app, start_redis, within, connected
):
    server = start_redis()
    app = delayq_app(server.url(), task_publish_retry_policy=FOREVER)
    if connected:
        app.send_task("t", delayq_after=60)
    app.conf.delayq_timeout = 0.3
    server.pause()

    assert 0.3 <= within(lambda: app.send_task("t", delayq_after=60)) < PATIENCE
    assert 0.3 <= within(lambda: app.delayq.get("a")) < PATIENCE
    server.resume()
