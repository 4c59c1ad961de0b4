"""`DelayQ.status()`: the state of the store, and the number of waiting tasks by queue."""

import json
from contextlib import closing
from datetime import datetime, timezone

import pytest
from kombu import Exchange, Queue

from celery_delayq.errors import StoreDiffers
from celery_delayq.operations.status import QueueCounts, ScannerSeen
from tests.app.support import FAR, LONG_AGO, redis_ms
from tests.support.shards import each, with_one_shard

AMQP = "amqp://127.0.0.1:1//"


def queues(delayq):
    return {one.queue: (one.waiting, one.overdue) for one in delayq.status().queues}


def test_the_status_tells_where_the_store_is_and_what_is_in_it(app, delayq, redis_server, redis):
    app.send_task("t", delayq_at=LONG_AGO)
    app.send_task("t", delayq_at=FAR, queue="mail")
    delayq.pause(queue="news")

    status = delayq.status()

    assert (status.store, status.prefix, status.path) == (redis_server.url(), "delayq", "direct")
    assert status.counts.scheduled == 2
    assert status.counts.oldest_overdue_ms == LONG_AGO * 1000
    assert [one.queue for one in status.pauses] == ["news"]
    assert list(status.queues) == [QueueCounts("celery", 1, 1), QueueCounts("mail", 1, 0)]
    assert status.queues_complete
    assert status.scanners == []


def test_scanners_are_named_with_their_last_heartbeat(delayq, redis):
    delayq.app.conf.delayq_safety_interval = 300  # it counts as alive for three times as long
    with closing(delayq.services.steps_by_shard()[0]) as shard_steps:
        before = redis_ms(redis)
        shard_steps.hand_over()

        [scanner] = delayq.status().scanners

        assert scanner == ScannerSeen(shard_steps.name, scanner.seen, scanner.since)
        assert scanner.seen.tzinfo is timezone.utc
        assert int(before) <= scanner.since.timestamp() * 1000
        assert scanner.since <= scanner.seen
        assert scanner.seen.timestamp() * 1000 <= redis_ms(redis)


def test_the_facts_of_the_status_are_json_and_times_are_text(app, delayq):
    app.send_task("t", delayq_at=LONG_AGO)

    facts = delayq.status().facts()

    assert json.loads(json.dumps(facts)) == facts
    assert facts["oldest_overdue"] == datetime.fromtimestamp(LONG_AGO, timezone.utc).isoformat()
    assert facts["queues"] == [{"queue": "celery", "waiting": 1, "overdue": 1}]


def test_a_password_is_not_told(delayq_app, redis_server, redis):
    redis.execute_command("ACL", "SETUSER", "shop", "on", ">hunter2", "~*", "&*", "+@all")
    url = redis_server.url().replace("redis://", "redis://shop:hunter2@")

    status = delayq_app(url).delayq.status()

    assert "hunter2" not in repr(status)
    assert "hunter2" not in json.dumps(status.facts())


def test_with_another_broker_the_path_is_the_relay_s_and_no_broker_is_asked(delayq_app, url):
    app = delayq_app(AMQP, delayq_url=url)
    app.send_task("t", queue="mail", delayq_at=FAR)

    assert app.delayq.status().path == "relay"
    assert queues(app.delayq) == {"mail": (1, 0)}


@pytest.mark.parametrize("broker", ["redis", AMQP])
@pytest.mark.parametrize("priority", [None, 9])
def test_another_process_knows_queues_that_it_never_declared(delayq_app, url, broker, priority):
    conf = {"delayq_url": url, "broker_transport_options": {"global_keyprefix": "shop:"}}
    if broker == AMQP:
        conf.pop("broker_transport_options")
    sender, reader = (delayq_app(url if broker == "redis" else AMQP, **conf) for _ in range(2))

    sender.send_task("t", queue="mail", priority=priority, delayq_at=FAR)

    assert "mail" not in reader.amqp.queues
    assert queues(reader.delayq) == {"mail": (1, 0)}


def test_the_scanners_broker_is_told_where_it_is_not_the_app_s(delayq_app, url):
    ours, other = delayq_app(url).delayq, delayq_app(AMQP, delayq_url=url).delayq
    assert other.status().other_broker is None
    ours.app.conf.delayq_safety_interval = 300  # it counts as alive for three times as long
    with closing(ours.services.steps_by_shard()[0]) as shard_steps:
        shard_steps.hand_over()

        assert ours.status().facts()["other_broker"] is None
        # Above, before the scanner was there, it was None.
        told = other.status().facts()["other_broker"]
        shard_steps.leave()

    assert told.startswith("redis, database 0 on 127.0.0.1:")
    assert other.status().other_broker is None


def test_a_queue_of_the_status_is_what_a_selection_by_queue_means(app, delayq):
    declared = Queue("reports", Exchange("media", type="topic"), routing_key="media.#")
    app.amqp.queues.add(declared)
    app.send_task("t", queue="reports", routing_key="media.video", delayq_at=FAR)
    app.send_task("t", exchange="media", routing_key="media.audio", delayq_at=FAR)
    for priority in (0, 3, 6, 9):
        app.send_task("t", queue="mail", priority=priority, delayq_at=FAR)

    told = queues(delayq)

    assert (told["mail"], told["reports"]) == ((4, 0), (1, 0))
    assert told == {name: (delayq.select(queue=name).count(), 0) for name in told}
    assert sum(waiting for waiting, _ in told.values()) == 6


@pytest.mark.parametrize(
    "name",
    ["a\nb", "\x1b[31mred", "mail\x06\x163", "\x06\x163", "süß", "a" * 5000, "{x}:y", " ", "%s"],
)
def test_a_strange_name_is_a_name(app, delayq, name):
    app.send_task("t", queue=name, delayq_at=FAR)

    assert queues(delayq) == {name: (1, 0)}
    assert json.loads(json.dumps(delayq.status().facts()))["queues"][0]["queue"] == name


@pytest.mark.parametrize("route", ["{", "[]", "7", '{"exchange": 1}', "[" * 100_000, "", "\xff"])
def test_a_route_that_is_none_hides_nothing(delayq_app, url, redis, route):
    app = delayq_app(AMQP, delayq_url=url)
    app.send_task("t", queue="mail", task_id="a", delayq_at=FAR)
    app.send_task("t", queue="news", task_id="b", delayq_at=FAR)
    [records] = [key for key in each("records") if redis.hexists(key, "a")]
    record = redis.hget(records, "a")
    length = int(record[2 : record.index(b":")])
    rest = record[record.index(b":") + 1 + length :]
    text = route.encode("latin-1")
    redis.hset(records, "a", b"1R%d:%s%s" % (len(text), text, rest))

    told = queues(delayq_app(AMQP, delayq_url=url).delayq)

    assert told.pop("news") == (1, 0)
    assert list(told.values()) == [(1, 0)]


@with_one_shard
def test_more_than_ten_thousand_are_not_all_looked_at_and_it_says_so(app, delayq):
    delayq.schedule_many(app.signature("t"), [((), {})] * 10_400, at=FAR)
    app.send_task("t", queue="mail", delayq_at=LONG_AGO)

    status = delayq.status()

    counted = {one.queue: one.waiting for one in status.queues}
    assert not status.queues_complete
    assert status.counts.scheduled == 10_401
    assert counted["mail"] == 1
    assert sum(counted.values()) == 10_000


READS = {
    "get": lambda delayq: delayq.get("a"),
    "state": lambda delayq: delayq.state("a"),
    "handed_over": lambda delayq: delayq.handed_over("a"),
    "tasks": lambda delayq: list(delayq.tasks()),
    "counts": lambda delayq: delayq.counts(),
    "pauses": lambda delayq: delayq.pauses(),
    "history": lambda delayq: delayq.history(),
    "check": lambda delayq: list(delayq.check()),
    "select": lambda delayq: list(delayq.select(state="dead")),
    "status": lambda delayq: delayq.status(),
}


def give_another_layout(redis):
    for meta in each("meta"):
        redis.hset(meta, mapping={"schema": "2", "shards": "1"})


@pytest.mark.parametrize("read", READS.values(), ids=list(READS))
def test_a_store_of_another_layout_is_no_empty_store(delayq_app, url, redis, read):
    give_another_layout(redis)

    with pytest.raises(StoreDiffers, match=r"^the store has layout '2', this process '1'"):
        read(delayq_app(url).delayq)


@with_one_shard
@pytest.mark.parametrize(
    "read",
    [pytest.param(READS[name], id=name) for name in READS if name not in ("status", "check")],
)
def test_only_the_first_read_asks_for_the_layout(delayq_app, url, redis, read):
    delayq_app(url).send_task("t", delayq_at=FAR)
    delayq = delayq_app(url).delayq
    delayq.counts()
    give_another_layout(redis)

    read(delayq)


@pytest.mark.parametrize("read", READS.values(), ids=list(READS))
def test_reading_an_empty_redis_leaves_it_empty(delayq_app, url, redis, read):
    if read is READS["select"]:
        pytest.skip("a selection names the store, so that its cursor is of that store only")

    read(delayq_app(url).delayq)

    assert redis.dbsize() == 0
