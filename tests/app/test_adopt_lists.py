"""What waits with a far `eta` in the lists of the broker's Redis goes into the store."""

import json
from datetime import datetime, timedelta, timezone

import pytest

from celery_delayq.errors import InvalidSetting, StoreUnavailable
from celery_delayq.integration.adopting import lists as adopting_lists
from celery_delayq.integration.adopting.lists import adopt_lists
from celery_delayq.store import Lists
from tests.app.support import to_ms

NOW = datetime.now(timezone.utc).replace(microsecond=0)
FAR = NOW + timedelta(days=1)


@pytest.fixture
def services(app):
    return app.delayq.services


def send(stranger, *ids, **options):
    for task_id in ids:
        stranger.send_task("t", (task_id,), task_id=task_id, **options)


def ids_in(redis, key="celery"):
    """What is consumed next comes first."""
    return [json.loads(one)["properties"]["correlation_id"] for one in redis.lrange(key, 0, -1)][
        ::-1
    ]


@pytest.fixture
def mixed(stranger):
    send(stranger, "plain1")
    send(stranger, "a", eta=FAR)
    send(stranger, "near", eta=NOW + timedelta(seconds=30))
    send(stranger, "b", eta=FAR)
    send(stranger, "out", eta=FAR, headers={"delayq_capture": False})
    send(stranger, "c", eta=FAR)
    send(stranger, "plain2")
    return ["plain1", "near", "out", "plain2"]


@pytest.mark.parametrize("size", [1, 2, 3, 200])
def test_what_is_far_goes_and_the_others_keep_their_order(
    services, mixed, redis, monkeypatch, size
):
    monkeypatch.setattr(adopting_lists, "SLICE", size)
    told = []

    assert adopt_lists(services, progress=told.append) == 3

    assert ids_in(redis) == mixed
    assert [to_ms(one.due) for one in services.app.delayq.tasks()] == [to_ms(FAR)] * 3
    assert {one.id for one in services.app.delayq.tasks()} == {"a", "b", "c"}
    assert told[-1] == 3


def test_a_dry_run_counts_and_changes_nothing(services, mixed, redis):
    before = {key: redis.dump(key) for key in redis.scan_iter("*")}

    assert adopt_lists(services, dry_run=True) == 3

    assert {key: redis.dump(key) for key in before} == before
    assert services.app.delayq.counts().scheduled == 0


@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize("options", [{"priority": 6}, {"compression": "zlib"}, {"queue": "celery"}])
def test_it_comes_back_to_its_list_when_it_is_due(stranger, services, redis, protocol, options):
    stranger.conf.task_protocol = protocol
    send(stranger, "a", eta=FAR, **options)
    [key] = redis.keys("celery*")

    assert adopt_lists(services) == 1

    assert not redis.exists(key)
    services.app.delayq.run_now("a")
    services.app.delayq.hand_over()
    assert ids_in(redis, key) == ["a"]
    assert services.app.delayq.get("a") is None


def test_of_the_queues_that_are_named(stranger, services, redis):
    send(stranger, "a", eta=FAR, queue="one")
    send(stranger, "b", eta=FAR, queue="two")

    assert adopt_lists(services, ["two"]) == 1

    assert ids_in(redis, "one") == ["a"]
    assert services.app.delayq.get("b").queue == "two"


@pytest.mark.parametrize("since", ["waits", "cancelled"])
def test_after_a_kill_in_between_it_is_repeated(stranger, services, redis, monkeypatch, since):
    send(stranger, "a", "b", eta=FAR)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Lists, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            adopt_lists(services)
    assert ids_in(redis) == ["a", "b"]
    if since == "cancelled":
        services.app.delayq.cancel("a")

    assert adopt_lists(services) == 2

    assert ids_in(redis) == []
    assert services.app.delayq.counts().scheduled == (2 if since == "waits" else 1)


def test_what_a_worker_takes_meanwhile_is_not_held_and_not_forgotten(
    stranger, services, redis, monkeypatch
):
    send(stranger, "a", eta=FAR)
    raw = redis.lindex("celery", 0)
    remove = Lists.remove

    def too_late(lists, key, message):
        redis.delete(key)
        return remove(lists, key, message)

    with monkeypatch.context() as patch:
        patch.setattr(Lists, "remove", too_late)
        assert adopt_lists(services) == 0
    assert services.app.delayq.counts().scheduled == 0

    redis.lpush("celery", raw)  # that worker died
    assert adopt_lists(services) == 1
    assert services.app.delayq.counts().scheduled == 1


def test_one_whose_id_is_scheduled_stays_in_its_list(stranger, services, redis, caplog):
    services.app.send_task("t", task_id="a", delayq_after=3600)
    send(stranger, "a", eta=FAR)

    assert adopt_lists(services) == 0

    assert ids_in(redis) == ["a"]
    assert caplog.messages[0].startswith("task a: stays in its list: ")


@pytest.mark.parametrize("raw", ["", "x", "{}", "[]", '{"headers": {}, "properties": {}}', "\xff"])
def test_what_is_no_message_stays(stranger, services, redis, raw):
    redis.rpush("celery", raw)
    send(stranger, "a", eta=FAR)

    assert adopt_lists(services) == 1
    assert redis.llen("celery") == 1


def test_a_store_that_is_away_is_an_error_and_nothing_is_removed(
    stranger, services, redis, monkeypatch
):
    send(stranger, "a", eta=FAR)

    def away(*_, **__):
        raise StoreUnavailable("schedule", "refused")

    monkeypatch.setattr(type(services.entries), "schedule", away)

    with pytest.raises(StoreUnavailable):
        adopt_lists(services)
    assert ids_in(redis) == ["a"]


def test_a_broker_without_lists_is_an_error_that_says_what_else(delayq_app, url):
    app = delayq_app("amqp://localhost:1//", delayq_url=url)

    with pytest.raises(InvalidSetting) as caught:
        adopt_lists(app.delayq.services)

    assert str(caught.value) == (
        "broker_url is 'amqp'; expected a Redis, which has lists; elsewhere workers adopt, by "
        "delayq_adopt_after"
    )


def test_with_the_setting_that_says_how_far(stranger, services, app):
    app.conf.delayq_adopt_after = 10
    send(stranger, "a", eta=datetime.now(timezone.utc) + timedelta(seconds=40))

    assert adopt_lists(services) == 1
