"""What waits with a far `eta` in the lists of the broker's Redis goes into the store."""

import json
from datetime import datetime, timedelta, timezone

import pytest
from celery import Celery

from celery_delayq.errors import InvalidSetting, StoreUnavailable
from celery_delayq.integration.adopting import lists as adopting_lists
from celery_delayq.integration.adopting.entries import Entering
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


def test_what_a_task_says_against_it_counts_where_only_workers_import_the_task(
    services, stranger, found_by_workers
):
    found_by_workers("t", delayq_capture=False)
    send(stranger, "a", eta=FAR)

    assert adopt_lists(services) == 0


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


def killed(*_, **__):
    raise KeyboardInterrupt


def unacked(redis):
    """What a consumer has taken, by kombu's bookkeeping."""
    assert redis.hlen("unacked") == redis.zcard("unacked_index")
    return redis.hlen("unacked")


def let_come_back(app, redis):
    """Do what kombu does when the visibility time-out of what was taken is over."""
    for tag in redis.zrange("unacked_index", 0, -1):
        redis.zadd("unacked_index", {tag: 0})
    with app.connection_for_read() as connection:
        connection.default_channel.qos.restore_visible()


@pytest.mark.parametrize("since", ["waits", "cancelled", "released"])
@pytest.mark.parametrize("place", [(Entering, "write"), (Lists, "settle")])
def test_after_a_kill_kombu_gives_back_what_was_taken(
    stranger, services, redis, monkeypatch, *, place, since
):
    delayq = services.app.delayq
    send(stranger, "a", "b", eta=FAR)
    with monkeypatch.context() as patch:
        patch.setattr(*place, killed)
        with pytest.raises(KeyboardInterrupt):
            adopt_lists(services)
    assert ids_in(redis) == []
    assert unacked(redis) == 2
    stored = delayq.counts().scheduled
    assert stored == (2 if place[1] == "settle" else 0)
    if since == "cancelled":
        delayq.cancel("a")
    elif since == "released":
        delayq.run_now("a")
        delayq.hand_over()
        redis.delete("celery")  # it has run

    let_come_back(stranger, redis)
    assert sorted(ids_in(redis)) == ["a", "b"]
    assert adopt_lists(services) == 2

    assert ids_in(redis) == []
    assert unacked(redis) == 0
    assert delayq.counts().scheduled == (1 if stored and since != "waits" else 2)


def test_what_a_worker_has_by_then_is_left_to_it(stranger, services, redis, monkeypatch):
    send(stranger, "a", eta=FAR)
    take = Lists.take

    def too_late(lists, key, messages):
        redis.delete(key)
        return take(lists, key, messages)

    with monkeypatch.context() as patch:
        patch.setattr(Lists, "take", too_late)
        assert adopt_lists(services) == 0

    assert services.app.delayq.counts().scheduled == 0
    assert unacked(redis) == 0


def test_a_message_that_is_there_twice_becomes_one_entry(stranger, services, redis):
    send(stranger, "a", eta=FAR)
    redis.lpush("celery", redis.lindex("celery", 0))

    assert adopt_lists(services) == 1
    assert adopt_lists(services) == 1

    assert ids_in(redis) == []
    assert services.app.delayq.counts().scheduled == 1


@pytest.mark.parametrize("options", [{}, {"global_keyprefix": "shop:", "unacked_key": "taken"}])
def test_it_takes_them_where_kombu_looks_for_them(delayq_app, url, redis, monkeypatch, options):
    app = delayq_app(url, broker_transport_options=options)
    with Celery("other", broker=url, set_as_current=False) as stranger:
        stranger.conf.broker_transport_options = options
        send(stranger, "a", eta=FAR)
        with monkeypatch.context() as patch:
            patch.setattr(Entering, "write", killed)
            with pytest.raises(KeyboardInterrupt):
                adopt_lists(app.delayq.services)
        prefix = options.get("global_keyprefix", "")
        assert redis.hlen(prefix + options.get("unacked_key", "unacked")) == 1
        redis.zadd(f"{prefix}unacked_index", {redis.zrange(f"{prefix}unacked_index", 0, 0)[0]: 0})
        with stranger.connection_for_read() as connection:
            connection.default_channel.qos.restore_visible()

    assert ids_in(redis, f"{prefix}celery") == ["a"]


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


def test_a_store_that_is_away_is_an_error_and_they_go_back_to_their_places(
    mixed, services, redis, monkeypatch
):
    before = redis.lrange("celery", 0, -1)

    def away(*_, **__):
        raise StoreUnavailable("schedule", "refused", False)

    monkeypatch.setattr(type(services.entries), "schedule", away)

    with pytest.raises(StoreUnavailable):
        adopt_lists(services)
    assert sorted(redis.lrange("celery", 0, -1)) == sorted(before)
    assert ids_in(redis)[:3] == ["a", "b", "c"]
    assert unacked(redis) == 0


def test_where_no_answer_came_kombu_gives_them_back(stranger, services, redis, monkeypatch):
    send(stranger, "a", eta=FAR)

    def unanswered(*_, **__):
        raise StoreUnavailable("schedule", "no answer", True)

    with monkeypatch.context() as patch:
        patch.setattr(type(services.entries), "schedule", unanswered)
        with pytest.raises(StoreUnavailable):
            adopt_lists(services)
    assert ids_in(redis) == []

    let_come_back(stranger, redis)
    assert adopt_lists(services) == 1
    assert unacked(redis) == 0


def test_a_broker_without_lists_is_an_error_that_says_what_else(delayq_app, url):
    app = delayq_app("amqp://localhost:1//", delayq_url=url)

    with pytest.raises(InvalidSetting) as caught:
        adopt_lists(app.delayq.services)

    assert str(caught.value) == (
        "the transport of broker_url is 'amqp'; expected a Redis, which has lists; elsewhere "
        "workers adopt, by delayq_adopt_after"
    )


def test_with_the_setting_that_says_how_far(stranger, services, app):
    app.conf.delayq_adopt_after = 10
    send(stranger, "a", eta=datetime.now(timezone.utc) + timedelta(seconds=40))

    assert adopt_lists(services) == 1
