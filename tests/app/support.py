"""Helpers for the tests of the Celery API: move due tasks, and read broker lists."""

import json
from datetime import timedelta
from types import SimpleNamespace

from celery import Celery

from celery_delayq.core.clock import EPOCH
from celery_delayq.core.scheduling.intercept import Interceptor
from tests.support.shards import each, total
from tests.support.waiting import eventually

OWN_HEADERS = ("delayq_due", "delayq_attempt", "delayq_redelivered", "delayq_hand_over")
LONG_AGO = 1_000_000_000  # Unix time; due at once, with no instant of "now" to wait for
FAR = 4_102_444_800  # 2100-01-01

# Each way to schedule a call with options, and those that take none beside its arguments.
WAYS = {
    "apply_async": lambda task, *args, at=FAR, **options: task.apply_async(
        args, delayq_at=at, **options
    ),
    "send_task": lambda task, *args, at=FAR, **options: task.app.send_task(
        task.name, args, delayq_at=at, **options
    ),
    "signature": lambda task, *args, at=FAR, **options: (
        task.s(*args).set(**options).delay_until(at)
    ),
    "signature's apply_async": lambda task, *args, at=FAR, **options: task.s(*args).apply_async(
        delayq_at=at, **options
    ),
    "schedule": lambda task, *args, at=FAR, **options: task.app.delayq.schedule(
        task.s(*args).set(**options), at=at
    ),
}
ALL_WAYS = {
    "delay_until": lambda task, *args: task.delay_until(FAR, *args),
    "delay_for": lambda task, *args: task.delay_for(3600, *args),
    **WAYS,
}


def noop(*_args):
    """The function of a task that never runs."""


class Killed(BaseException):
    """Ends the process."""


def lists(redis):
    """Each list of the broker with its messages, oldest first; neither ours nor kombu's own."""
    keys = [key for key in redis.keys("*") if redis.type(key) == b"list"]
    return {key: redis.lrange(key, 0, -1)[::-1] for key in keys if b"celery.pidbox" not in key}


def only_message(redis):
    """(key, raw message) of the one message that there is."""
    [(key, [message])] = lists(redis).items()
    return key, message


def received(app, queue="celery", accept=None):
    """The messages of a queue, taken from it as a consumer of kombu gets them."""
    with app.connection_for_read() as connection:
        simple = connection.SimpleQueue(queue, no_ack=True, accept=accept)
        messages = [simple.get_nowait() for _ in range(simple.qsize())]
        simple.close()
    return messages


def comparable(raw):
    """A message without our headers, and without fields that differ in any two messages."""
    message = json.loads(raw)
    message["properties"].pop("delivery_tag")
    # Celery counts it from the call; Redis has no expiry of messages, so it is left out.
    message["properties"].pop("expiration", None)
    for name in OWN_HEADERS:
        message["headers"].pop(name, None)
    return message


def arrive_in_protocol_1(app, name="t", args=(), kwargs=None, *, queue="celery", **options):
    """Adopt, as a worker does, the messages of a process without a DelayQ in an empty queue."""
    # It belongs to a leaf, and tests of the core run without it.
    from celery_delayq.contrib.adoption.messages import never, schedule_delivered

    with Celery("stranger", broker=app.conf.broker_url, set_as_current=False) as stranger:
        stranger.conf.task_protocol = 1
        stranger.send_task(name, args, kwargs, queue=queue, **options)
        [message] = received(stranger, queue, ["json", "pickle"])
        schedule_delivered(Interceptor(app.delayq.services, never), message)


def envelope(delayq, task_id):
    """The scheduled message, as it would be delivered now."""
    message = json.loads(delayq.services.entries.find(task_id).message)
    return SimpleNamespace(
        headers=message["headers"], properties=message["properties"], raw=message
    )


def templates(redis):
    """How many templates are kept, and how many entries share them."""
    uses = (int(one) for key in each("template_uses") for one in redis.hvals(key))
    return total(redis.hlen, "templates"), sum(uses)


def redis_ms(redis):
    seconds, micros = redis.time()
    return seconds * 1000 + micros / 1000


def redis_now(redis):
    return EPOCH + timedelta(milliseconds=redis_ms(redis))


def to_ms(time):
    return round(time.timestamp() * 1000)


def fall_due_after_cancel(redis, task_id):
    """Let a cancelled task be due one millisecond after its cancel, and not at FAR.

    With a due time that is near, a slow machine would cancel it too late.
    """
    _fall_due(redis, task_id.encode(), FAR)


def fall_due_after_move(redis, task_id, before):
    """Let a task that a change of many moved have been due one millisecond after that."""
    _fall_due(redis, b"\xff" + task_id.encode(), before)


def _fall_due(redis, name, due):
    [(undo, line)] = [(key, line) for key in each("undo") if (line := redis.hget(key, name))]
    due_ms = int(line[:16]) // 1000 + 1
    redis.hset(undo, name, line.replace(b"%d" % (due * 1000), b"%d" % due_ms))
    eventually(lambda: redis_ms(redis) > due_ms)
