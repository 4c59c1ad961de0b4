"""The questions of `test_on_commit`, one a function; run in the recipe's project."""

import contextlib
from functools import partial

from celery import shared_task
from celery.contrib.django.task import DjangoTask
from django.db import transaction
from orders.models import Order
from orders.steps import pay, place
from orders.tasks import remind
from shop.celery import app, delayq

from celery_delayq import DelayQTask
from tests.django.conftest import error_of

FAR = "2100-01-01T00:00:00Z"
broker = app.conf.broker_url
store = app.broker_connection().default_channel.client


class RolledBack(Exception):
    pass


@contextlib.contextmanager
def rolled_back():
    with contextlib.suppress(RolledBack), transaction.atomic():
        yield
        raise RolledBack


def waits(task_id):
    return delayq.get(task_id) is not None


def now():
    seconds, micros = store.time()
    return seconds + micros / 1e6


def spend(seconds):
    until = now() + seconds
    while now() < until:
        pass


def commits():
    with transaction.atomic():
        task_id = remind.delay_until_on_commit(FAR, 42)
        before = waits(task_id)
    task = delayq.get(task_id)
    return [before, task.id == task_id, task.args, task.due.isoformat()]


def rolls_back():
    with rolled_back():
        Order.objects.create(pk=100)
        task_id = remind.delay_for_on_commit(60, 100)
    return [waits(task_id), delayq.counts().scheduled, Order.objects.filter(pk=100).exists()]


def counts_from_the_commit():
    with transaction.atomic():
        task_id = remind.delay_for_on_commit(60, 1)
        spend(0.05)
        committed = now()
    return delayq.get(task_id).due.timestamp() - committed


def savepoint_rolled_back():
    with transaction.atomic():
        outer = remind.delay_for_on_commit(60, 1)
        with rolled_back():
            inner = remind.delay_for_on_commit(60, 2)
    return [waits(outer), waits(inner)]


def no_transaction():
    return waits(remind.delay_for_on_commit(60, 1))


def past_at_the_commit():
    with transaction.atomic():
        task_id = remind.delay_until_on_commit(now() - 5, 1)
    return [delayq.hand_over(), delayq.handed_over(task_id) is not None]


def wrong(name, *args, **kwargs):
    def in_transaction():
        with transaction.atomic():
            Order.objects.create(pk=200)
            getattr(remind, name)(*args, **kwargs)

    return [*error_of(in_transaction), Order.objects.filter(pk=200).exists()]


def wrong_setting():
    app.conf.delayq_url = "http://here"
    try:
        return wrong("delay_for_on_commit", 60, 1)
    finally:
        app.conf.delayq_url = broker


def redis_is_away(away):
    called = []
    app.conf.delayq_url = away

    def transact():
        nonlocal task_id
        with transaction.atomic():
            Order.objects.create(pk=300)
            task_id = remind.delay_for_on_commit(60, 300)
            transaction.on_commit(partial(called.append, "later"))

    task_id = None
    kind, _ = error_of(transact)
    app.conf.delayq_url = broker
    again = partial(remind.s(300).set(task_id=task_id).delay_for, 60)
    return {
        "error": kind,
        "stored": Order.objects.filter(pk=300).exists(),
        "called": called,
        "waits": waits(task_id),
        "again": [again().id == task_id, error_of(again)[0]],
    }


@shared_task
def searches(using, when, delay, self=None, task=None):
    pass


def keywords():
    given = {"using": "archive", "when": 1, "delay": 2, "task": 3}
    ids = [searches.delay_for_on_commit(60, **given), searches.delay_until_on_commit(FAR, **given)]
    return [delayq.get(one).kwargs == given for one in ids]


def another_database():
    with transaction.atomic(using="archive"):
        at_once = remind.delay_for_on_commit(60, 1)
        transaction.on_commit(
            partial(delayq.schedule, remind.s(1), after=60, key="archived"), using="archive"
        )
        before = [waits(at_once), delayq.get(key="archived") is not None]
    return [before, delayq.get(key="archived") is not None]


def with_options():
    with transaction.atomic():
        remind.apply_async_on_commit((42,), delayq_after=1800, delayq_key="topup:7")
        before = delayq.get(key="topup:7") is not None
    return [before, delayq.get(key="topup:7").args]


def recipe():
    order = place()
    scheduled = waits(order.reminder) and order.reminder == Order.objects.get(pk=order.pk).reminder
    with rolled_back():
        pay(order)
    after_rollback = waits(order.reminder)
    pay(order)
    return [scheduled, after_rollback, waits(order.reminder)]


class Own(DelayQTask):
    pass


class OfDjango(DjangoTask):
    pass


def kinds():
    def run(number):
        pass

    def run_bound(self, number):
        pass

    made = [
        app.task(name="plain")(run),
        app.task(name="bound", bind=True)(run_bound),
        app.task(name="of django", base=OfDjango)(run),
        app.register_task(type("Classy", (OfDjango,), {"run": run_bound})()),
        app.task(name="own", base=Own)(run),
    ]
    return [has_both(task) for task in made]


def has_both(task):
    if not hasattr(task, "delay_on_commit"):
        return hasattr(task, "delay_for_on_commit")
    scheduled = [task.delay_for_on_commit(60, 7), task.delay_until_on_commit(FAR, 7)]
    refused = error_of(task.delay_for_on_commit, 60)
    return [[delayq.get(one).args for one in scheduled], refused and refused[0]]


def eager():
    ran = []

    @app.task(name="eager", bind=True)
    def note(self, number):
        ran.append([self.request.id, number])

    app.conf.task_always_eager = True
    app.conf.delayq_url = "http://here"  # eager mode does not use it
    with transaction.atomic():
        task_id = note.delay_for_on_commit(60, 1)
        before = list(ran)
    app.conf.task_always_eager = False
    app.conf.delayq_url = broker
    return [before, ran == [[task_id, 1]]]


def main(away):
    """All of the answers; no server listens at *away*."""
    asked = [
        *(commits, rolls_back, counts_from_the_commit, savepoint_rolled_back),
        *(no_transaction, past_at_the_commit, wrong_setting),
        *(keywords, another_database, with_options, recipe, kinds, eager),
    ]
    answers = {}
    for one in asked:
        store.flushall()
        answers[one.__name__] = one()
    store.flushall()
    answers["redis_is_away"] = redis_is_away(away)
    answers["wrong time"] = wrong("delay_until_on_commit", "tomorrow", 1)
    answers["wrong delay"] = wrong("delay_for_on_commit", "soon", 1)
    answers["wrong arguments"] = wrong("delay_for_on_commit", 60)
    answers["a delay as a time"] = wrong("delay_until_on_commit", 60, 1)
    return answers
