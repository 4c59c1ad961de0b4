"""A store with one of each: every kind of entry, in every place, with all its other keys.

Ids and due times are the same each time; random values and timestamps differ.
"""

import contextlib
from datetime import datetime, timedelta, timezone
from unittest import mock

import redis
from celery import Celery, chain, group
from kombu import Exchange, Queue

from celery_delayq import DelayQ
from celery_delayq.core.clock import monotonic
from celery_delayq.core.store import Keys
from celery_delayq.core.store.changes import Removal
from celery_delayq.core.store.delivery import ScannerSteps
from tests.app.support import FAR, LONG_AGO, arrive_in_protocol_1

CONF = {
    "accept_content": ["json", "pickle"],
    "delayq_history": 100,
    "delayq_lease": 1,
    "delayq_shards": 1,
    "delayq_undo": (2_592_000, 100),
    "task_queues": [
        Queue("celery"),
        Queue("mail"),
        Queue("news", Exchange("news", type="topic"), routing_key="news.#"),
    ],
    "worker_enable_remote_control": False,
}
NEWS = {"exchange": "news", "routing_key": "news.today"}
YEAR = 31_536_000.0
EXPIRES = datetime(2200, 1, 1, tzinfo=timezone.utc)
GRACE = 200 * YEAR

#: Far ahead: id -> options of the call.
WAITING = {
    "first": {},
    "second": {},
    "pickle": {"serializer": "pickle"},
    "compressed": {"compression": "zlib"},
    "priority": {"priority": 7},
    "headers": {"headers": {"trace": "ü", "deep": {"list": [1.5, None, 2**60]}}},
    "links": {"link": {"task": "next", "args": [], "kwargs": {}, "options": {}}},
    "limits": {"time_limit": 30, "soft_time_limit": 20.5},
    "expires at": {"expires": EXPIRES},
    "expires-after": {"expires": 60},
    "expires after ü\n": {"expires": 60},
    "other queue": {"queue": "mail"},
    "exchange": NEWS,
    "key": {"delayq_key": "order:42"},
    "key ü": {"delayq_key": "ü: %\n", "delayq_tags": ["user:7"], **NEWS},
    "tags": {"delayq_tags": ["user:7", "ü\n"]},
    "grace": {"delayq_late": "skip", "delayq_grace": 0},
    "all extras": {
        "delayq_key": "all", "delayq_tags": ["user:7"],
        "delayq_late": "skip", "delayq_grace": timedelta(seconds=GRACE),
    },
    "once": {"delayq_once": True, **NEWS},
}  # fmt: skip

#: Due long ago: id -> options of the call.
DUE = {
    "due list": {},
    "due list key": {"delayq_key": "due"},
    "due relay": NEWS,
    "due relay tags": {"delayq_tags": ["user:7"], **NEWS},
}


def app_of(url: str, **conf: object) -> DelayQ:
    app = Celery("frozen", broker=url, set_as_current=False)
    app.conf.update({**CONF, **conf})
    return DelayQ(app)


def fill(url: str, client: redis.Redis) -> None:
    """Fill the empty Redis at *url*; *client* is connected to it."""
    delayq = app_of(url)
    nobody = mock.patch("celery.app.amqp.anon_nodename", return_value="gen1@frozen")
    with nobody, contextlib.closing(delayq):
        shard_steps = _engine(delayq)
        with contextlib.closing(shard_steps):
            _leave(delayq)
            _be_relayed(delayq, shard_steps)
            _be_paused(delayq, shard_steps)
            _wait(delayq)
            _be_changed(delayq)
            _be_spoilt(client)
            # Last, as it takes every due task.
            delayq.pause(queue="celery")
            delayq.pause(queue="news")
            for task_id, options in DUE.items():
                _send(delayq, task_id, LONG_AGO, **options)


def _engine(delayq: DelayQ) -> ScannerSteps:
    services = delayq.services
    (scripts,) = services.scripts
    return ScannerSteps(scripts, services.membership, name="frozen:1:0")


def _send(delayq: DelayQ, task_id: str, when: float, **options: object) -> None:
    delayq.app.send_task(
        "shop.remind", (1, "ü"), {"k": [None]}, task_id=task_id, delayq_at=when, **options
    )


def _leave(delayq: DelayQ) -> None:
    """Marks of tasks that left, and REVOKED states still owed to the result backend."""
    for task_id in ("handed over", "handed over under key"):
        key = {"delayq_key": "left"} if "key" in task_id else {}
        _send(delayq, task_id, LONG_AGO, **key)
    delayq.hand_over()
    for task_id in ("cancelled", "owed"):
        _send(delayq, task_id, FAR)
    delayq.cancel("cancelled")
    delayq.services.entries.change("owed", Removal("caller"))
    for task_id in ("of a bulk", "of a bulk too"):
        _send(delayq, task_id, FAR, delayq_tags=["gone"])
    with delayq.acting("ann"):
        delayq.select(tag="gone").cancel()
    _send(delayq, "skipped", LONG_AGO, delayq_late="skip", delayq_grace=0)
    delayq.hand_over()
    until = monotonic() + 5
    delayq.services.copies.first(("arrived", "1.1"), 1, until)


def _be_relayed(delayq: DelayQ, shard_steps: ScannerSteps) -> None:
    """Relayed tasks that are in flight, refused, dead and uncertain."""
    ids = ("in flight", "in flight key", "refused", "dead", "uncertain", "dead key")
    for task_id in ids:
        key = {"delayq_key": f"of {task_id}"} if "key" in task_id else {}
        _send(delayq, task_id, LONG_AGO, **key, **NEWS)
    shard_steps.hand_over()
    claimed = {one.task_id: [one] for one in shard_steps.claim(100)[0]}
    assert claimed.keys() == set(ids)
    shard_steps.nack("refused", claimed["refused"], wait=100 * YEAR, reason="no such queue")
    shard_steps.nack("dead", claimed["dead"], reason="NO_ROUTE \x1b[2J")
    shard_steps.nack("dead", claimed["dead key"], uncertain=True, reason="NO_ROUTE")
    shard_steps.nack("unknown", claimed["uncertain"])
    # It waits from now on; the next claim would put it in flight again.
    delayq.reschedule("uncertain", FAR)
    # Meanwhile another task may wait under its key.
    _send(delayq, "waits under that key", FAR, delayq_key="of in flight key")


def _be_paused(delayq: DelayQ, shard_steps: ScannerSteps) -> None:
    """Tasks that are parked, that come back, and one that `run_now` sends in spite of the pause."""
    delayq.pause(queue="mail", late=True)
    delayq.pause(task="shop.back")
    _send(delayq, "parked", LONG_AGO, queue="mail")
    _send(delayq, "parked too", LONG_AGO, queue="mail", delayq_tags=["user:7"])
    delayq.app.send_task("shop.back", task_id="comes back", delayq_at=LONG_AGO)
    delayq.app.send_task("shop.back", task_id="comes back later", delayq_at=LONG_AGO)
    shard_steps.hand_over()
    delayq.resume(task="shop.back", rate=0.001)
    _send(delayq, "run now", FAR, queue="mail")
    delayq.run_now("run now")


def _wait(delayq: DelayQ) -> None:
    for task_id, options in WAITING.items():
        _send(delayq, task_id, FAR, **options)
    _send(delayq, "large", FAR, argsrepr="x" * 5000)
    for task_id in ("protocol 1", "protocol 1 pickle"):
        options = {"serializer": "pickle" if "pickle" in task_id else "json", "delayq_at": FAR}
        arrive_in_protocol_1(
            delayq.app, "shop.remind", (1,), task_id=task_id, queue="old", **options
        )
    add = delayq.app.signature("shop.add", args=(1, 2))
    chain(add, add).set(task_id="chain").delay_until(FAR)
    group(add, add).set(task_id="group").delay_until(FAR)
    delayq.schedule_many(
        delayq.app.signature("shop.bulk"),
        [((number,), {}, FAR + number, f"bulk-{number}") for number in range(5)],
    )


def _be_changed(delayq: DelayQ) -> None:
    for task_id in ("moved", "edited", "replaced"):
        _send(delayq, task_id, FAR, delayq_key=f"of {task_id}")
    delayq.reschedule("moved", FAR + 1)
    delayq.edit("edited", args=(2,), priority=3)
    _send(delayq, "replaces", FAR, delayq_key="of replaced", delayq_conflict="replace")


def _be_spoilt(client: redis.Redis) -> None:
    """Records that this version cannot read, dead and not."""
    keys = Keys("delayq")
    client.hset(keys["records"], "of the future", b"? whatever \xff it has")
    client.zadd(keys["dead"], {b"\0\0\0\0\0\x02of the future": 10**12})
    client.hset(keys["errors"], "of the future", 'record format "?" is unknown')
    client.zadd(keys["dead"], {b"\0" * 6 + b"without a record": 10**12})
    client.hset(keys["errors"], "without a record", "no record")
