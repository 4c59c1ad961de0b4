"""`DelayQ.status()` and `DelayQ.health()`: the state of the store, and what is wrong."""

import contextlib
import json
import re
import socket
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from celery_delayq.core.clock import from_ms
from celery_delayq.core.store import Counts
from celery_delayq.errors import InvalidOption, InvalidSetting, StoreDiffers
from celery_delayq.operations import health
from celery_delayq.operations.status import QueueCounts, ScannerSeen
from tests.app.support import FAR, LONG_AGO, redis_ms
from tests.support.places import at
from tests.support.ports import free_port
from tests.support.shards import each, with_one_shard
from tests.support.waiting import eventually

# `DelayQ.status()`: the state of the store, and the number of waiting tasks by queue.


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


def test_scanners_are_named_with_their_last_heartbeat(app, delayq, redis, alive):
    before = redis_ms(redis)
    [shard_steps, *_] = alive(app)
    [scanner] = delayq.status().scanners

    assert scanner == ScannerSeen(shard_steps.name, scanner.seen, scanner.since)
    assert scanner.seen.tzinfo is timezone.utc
    assert int(before) <= scanner.since.timestamp() * 1000
    assert scanner.since <= scanner.seen
    assert scanner.seen.timestamp() * 1000 <= redis_ms(redis)


def test_the_facts_of_the_status_are_json_and_times_are_text(app, delayq, redis_server, alive):
    delayq.pause(queue="mail", late=True)
    app.send_task("t", queue="mail", delayq_at=LONG_AGO)
    [shard_steps, *_] = alive(app)
    for due in (LONG_AGO, FAR):
        app.send_task("t", delayq_at=due)
    [scanner], [pause] = delayq.status().scanners, delayq.pauses()

    facts = delayq.status().facts()

    assert (
        json.loads(json.dumps(facts))
        == facts
        == {
            "store": redis_server.url(),
            "prefix": "delayq",
            "path": "direct",
            "other_broker": None,
            "scheduled": 2,
            "overdue": 1,
            "refused": 0,
            "paused": 1,
            "in_flight": 0,
            "dead": 0,
            "oldest_overdue": datetime.fromtimestamp(LONG_AGO, timezone.utc).isoformat(),
            "next_due": datetime.fromtimestamp(LONG_AGO, timezone.utc).isoformat(),
            "is_exact": True,
            "began": from_ms(delayq.counts().began_ms).isoformat(),
            "rules": 0,
            "troubled_rules": 0,
            "scanners": [
                {
                    "name": shard_steps.name,
                    "seen": scanner.seen.isoformat(),
                    "since": scanner.since.isoformat(),
                }
            ],
            "pauses": [
                {
                    "queue": "mail",
                    "task": None,
                    "since": pause.since.isoformat(),
                    "late": True,
                    "parked": 1,
                    "resumed": False,
                    "rate": None,
                    "is_exact": True,
                    "held_since": pause.held_since.isoformat(),
                }
            ],
            "queues": [{"queue": "celery", "waiting": 2, "overdue": 1}],
            "queues_complete": True,
        }
    )


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


def test_the_scanners_broker_is_told_where_it_is_not_the_app_s(delayq_app, url, alive):
    ours, other = delayq_app(url).delayq, delayq_app(AMQP, delayq_url=url).delayq
    assert other.status().other_broker is None
    steps = alive(ours.app)
    assert ours.status().facts()["other_broker"] is None
    # Above, before the scanner was there, it was None.
    told = other.status().facts()["other_broker"]
    for shard_steps in steps:
        shard_steps.leave()

    assert told.startswith("redis, database 0 on 127.0.0.1:")
    assert other.status().other_broker is None


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


# `DelayQ.health()`: a sentence for each thing that is wrong.


NOBODY = health.NO_SCANNER.sentence
NOW = 1_800_000_000  # Unix time
WELL = Counts(5, 1, 0, 2, 0, 0, 0, None, NOW * 1000)


@pytest.mark.parametrize("broker", ["redis", "one that is away"])
def test_with_a_scanner_and_nothing_overdue_nothing_is_wrong(delayq_app, url, broker, alive):
    delayq = delayq_app(url if broker == "redis" else AMQP, delayq_url=url).delayq
    delayq.app.send_task("t", delayq_at=FAR)

    alive(delayq.app)
    assert delayq.health() == []


@pytest.mark.parametrize("queue", ["celery", "broken"])
def test_an_overdue_task_is_reported_with_its_due_time(app, delayq, redis, queue, alive):
    redis.set("broken", "not a list")
    steps = alive(app)
    app.send_task("t", queue=queue, delayq_at=LONG_AGO)
    if queue == "broken":
        for shard_steps in steps:
            shard_steps.hand_over()
    assert delayq.counts().refused == (queue == "broken")

    sentence, *others = delayq.health()

    assert sentence.startswith("a task that was due at 2001-09-09 01:46:40 UTC is overdue by ")
    assert sentence.endswith("; 60 s are allowed")
    refused = "1 task is refused by a queue, and tried again; 0 are allowed"
    assert others == ([refused] if queue == "broken" else [])


def wrong(counts, *pauses, **allowed):
    """The problems of a store with these counts and pauses."""
    sight = health.Sight(None, counts, pauses, bounds=health.Bounds(**allowed))
    return [line.sentence for line in health.seen(sight) if line.is_problem]


@pytest.mark.parametrize(
    ("overdue_ms", "allowed", "is_well"),
    [(60_000, 60, True), (60_001, 60, False), (1, 0, False), (0, 0, True), (-5000, 0, True)],
)
def test_the_bound_is_to_the_millisecond(overdue_ms, allowed, is_well):
    counts = replace(WELL, oldest_overdue_ms=NOW * 1000 - overdue_ms)

    assert (not wrong(counts, overdue=allowed)) == is_well


def test_of_more_than_one_problem_each_is_told():
    counts = replace(WELL, scanners=0, dead=3, oldest_overdue_ms=(NOW - 90) * 1000)

    assert wrong(counts, overdue=30, dead=2) == [
        NOBODY,
        "a task that was due at 2027-01-15 07:58:30 UTC is overdue by 1 min 30 s; 30 s are allowed",
        "3 tasks are dead; 2 are allowed",
    ]


def test_dead_tasks_are_reported_beyond_the_allowed_number(app, delayq, alive):
    at(delayq, "dead")

    alive(app)
    assert delayq.health() == ["1 task is dead; 0 are allowed"]
    assert delayq.health(max_dead=1) == []


def test_a_store_that_began_after_its_scanner_is_reported(delayq_app, url, redis):
    delayq = delayq_app(url, delayq_shards=2).delayq
    both = delayq.services.steps_by_shard()
    with contextlib.ExitStack() as stack:
        for shard_steps in both:
            stack.enter_context(closing(shard_steps)).hand_over()
        assert delayq.health() == []
        joined_ms = int(redis_ms(redis))
        eventually(lambda: redis_ms(redis) > joined_ms + 1)

        # One node of a Cluster loses its data.
        lost = delayq.services.entries.shards[1].scripts.keys
        redis.delete(*lost.names)
        both[1].go_on_as(both[1].name)
        both[1].hand_over()
        [sentence] = delayq.health()

    assert re.match(r"this store began [\d smin]+ ago, its scanner [\d smin]+ ago: ", sentence)


def test_a_load_into_an_empty_store_is_its_beginning(delayq_app, url, redis):
    one, two = (delayq_app(url, delayq_prefix=prefix).delayq for prefix in ("one", "two"))
    one.app.send_task("t", task_id="a", delayq_at=FAR)
    lines, began_ms = list(one.dump()), one.counts().began_ms
    eventually(lambda: redis_ms(redis) > began_ms + 1)

    two.load(lines)

    assert began_ms < two.counts().began_ms <= two.counts().now_ms


def test_a_store_that_is_away_is_a_sentence_with_its_address(delayq_app):
    url = f"redis://127.0.0.1:{free_port()}/0"

    [sentence] = delayq_app(url).delayq.health()

    assert sentence.startswith(f"the store {url} cannot be read: ")
    assert "refused" in sentence


def test_a_store_that_refuses_is_a_sentence(delayq, redis):
    for meta in each("meta"):
        redis.set(meta, "somebody's")

    [sentence] = delayq.health()

    assert "WRONGTYPE" in sentence


def test_a_store_of_another_layout_is_a_sentence_whenever_it_is_asked(app, delayq, redis, alive):
    alive(app)
    assert delayq.health() == []
    give_another_layout(redis)

    [sentence] = delayq.health()

    assert sentence == (
        "the store has layout '2', this process '1'; give it a delayq_prefix of its own, or make "
        "all processes agree"
    )


def test_scanners_with_another_broker_are_a_problem_while_they_are_alive(delayq_app, url, alive):
    ours, other = delayq_app(url).delayq, delayq_app(AMQP, delayq_url=url).delayq
    where = url.partition("//")[2].partition("/")[0]

    steps = alive(ours.app)
    assert ours.health() == []
    [sentence] = other.health()
    assert sentence == (
        f"this store's scanners have the broker redis, database 0 on {where}, this app has "
        "amqp, virtual host / on 127.0.0.1:1: this app's calls that change the store are "
        "refused; give each app a delayq_prefix of its own, or both the same broker_url"
    )
    assert other.health(here=True) == []
    for shard_steps in steps:
        shard_steps.leave()

    assert other.health() == [NOBODY]


def test_a_wrong_setting_is_an_error(delayq_app, url):
    with pytest.raises(InvalidSetting, match="delayq_timeout"):
        delayq_app(url, delayq_timeout=0).delayq.health()


def test_health_with_here_asks_for_a_scanner_of_this_host_and_for_nothing_else(
    app, delayq, monkeypatch, alive
):
    alive(app)
    app.send_task("t", delayq_at=LONG_AGO)
    assert delayq.health(here=True) == []

    monkeypatch.setattr(socket, "gethostname", lambda: "web9")

    assert delayq.health(here=True) == ["no scanner on this host, web9, is alive"]


@pytest.mark.parametrize("host", ["web", "web10", "1:web1", "web1:4711"])
def test_a_host_of_a_similar_name_is_another_one(app, delayq, monkeypatch, host, alive):
    monkeypatch.setattr(socket, "gethostname", lambda: "web1")
    alive(app)
    assert delayq.health(here=True) == []
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    assert delayq.health(here=True) != []


@pytest.mark.parametrize(
    ("given", "value", "expected"),
    [
        *(("max_overdue", value, "a number of seconds from 0") for value in
          (-1, float("nan"), float("inf"), "60", None, True)),
        ("max_paused", -1, "a number of seconds from 0"),
        *(("max_dead", value, "a whole number of tasks from 0") for value in
          (-1, 1.0, "1", None, False)),
        *(("here", value, "true or false") for value in (1, None, "web1")),
    ],
)  # fmt: skip
def test_a_bound_that_is_none_is_an_error(delayq, given, value, expected):
    with pytest.raises(InvalidOption) as caught:
        delayq.health(**{given: value})

    assert str(caught.value) == f"{given} is {value!r}; expected {expected}"
