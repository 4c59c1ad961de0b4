"""The shop of the roll-out, in its old code and in its new code, plain or with celery_delayq.

In the new code ``remind`` is ``send_reminder``, ``charge`` takes a currency, and ``report`` is
gone.
"""

import os
import sys
import time
from functools import cache
from threading import Event

import redis
from celery import Celery

PLAIN, DELAYED, OLD, NEW = "plain", "delayed", "old", "new"
KINDS = ("remind", "charge", "remind", "charge", "report")  # of orders, by their number
RENAMED = {"shop.remind": "shop.send_reminder"}

side, code = os.environ.get("SHOP_SIDE", PLAIN), os.environ.get("SHOP_CODE", OLD)
app = Celery("shop", broker=os.environ.get("SHOP_BROKER", "memory://"), set_as_current=False)
app.conf.update(
    broker_connection_retry_on_startup=True,
    task_ignore_result=True,
    task_default_queue=side,
    # A killed worker's tasks come again.
    task_acks_late=True,
    task_reject_on_worker_lost=True,
)
if side == DELAYED:
    from celery_delayq import DelayQ

    app.conf.update(delayq_url=os.environ["SHOP_STORE"], delayq_timeout=30)
    delayq = DelayQ(app)


def ran(order: int, *facts: object) -> None:
    _notes().rpush(side, " ".join(map(str, (order, code, *facts))))


@cache
def _notes() -> redis.Redis:
    return redis.Redis.from_url(os.environ["SHOP_STORE"])


if code == OLD:

    @app.task(name="shop.remind", shared=False)
    def remind(order):
        ran(order)

    @app.task(name="shop.charge", shared=False)
    def charge(order):
        ran(order)

    @app.task(name="shop.report", shared=False)
    def report(order):
        ran(order)

else:

    @app.task(name="shop.send_reminder", shared=False)
    def send_reminder(order):
        ran(order)

    @app.task(name="shop.charge", shared=False)
    def charge(order, currency):
        ran(order, currency)


def priced(args, kwargs):
    return None if "currency" in kwargs else (args, {**kwargs, "currency": "EUR"})


def unpriced(args, kwargs):
    if "currency" not in kwargs:
        return None
    return args, {name: value for name, value in kwargs.items() if name != "currency"}


def call(order: int, seconds: float) -> None:
    """Schedule the task of an order, as this code calls it."""
    kind, more = KINDS[order % len(KINDS)], {}
    if code == NEW:
        kind = {"remind": "send_reminder", "report": "send_reminder"}.get(kind, kind)
        more = {"currency": "EUR"} if kind == "charge" else {}
    way = {"delayq_after": seconds} if side == DELAYED else {"countdown": seconds}
    app.tasks[f"shop.{kind}"].apply_async((order,), more, **way)


def main(first: int, count: int, soonest: float, window: float, rate: float) -> None:
    """Schedule orders, due over a window of seconds; *rate* a second, or 0: at once."""
    begun = time.monotonic()
    for number in range(count):
        due = soonest + window * (number * 7919 % count) / count
        call(first + number, due)
        if rate:
            Event().wait(max(0.0, begun + (number + 1) / rate - time.monotonic()))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *map(float, sys.argv[3:]))
