"""A shop's tasks, as the pages show them: many wait; some are paused or dead; some are gone."""

from contextlib import closing
from uuid import UUID

from tests.app.support import redis_ms
from tests.support.places import take

# For each kind of task: its name, its queue, the words of its argument, its key and its tags.
KINDS = (
    ("shop.remind_of_cart", "mail", "cart-{}", "cart:{}", ("customer:{}", "reminder")),
    ("shop.send_invoice", "billing", "invoice-{}", None, ("customer:{}",)),
    ("shop.expire_order", "orders", "order-{}", "order:{}", ("customer:{}",)),
    ("shop.ask_for_review", "mail", "order-{}", None, ("customer:{}", "autumn")),
    ("shop.renew_subscription", "billing", "plan-{}", "plan:{}", ("customer:{}", "renewal")),
    ("shop.reorder", "stock", "article-{}", None, ()),
)
SETTINGS = {"delayq_history": 100, "delayq_undo": (3600, 1000)}


def id_of(number):
    """An id of Celery's form, the same in each run."""
    return str(UUID(int=(number + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128, version=4))


def work(subject, locale="en"):
    """Stands for the work of any task."""


def fill(app, redis, waiting=400):
    """Put the shop's tasks into an empty store; the app has ``SETTINGS``."""
    for name in (*(kind[0] for kind in KINDS), "shop.send_newsletter", "shop.track_parcel"):
        app.task(name=name)(work)  # the history names only tasks that the app has
    now = redis_ms(redis) / 1000
    for number in range(waiting):
        schedule(app, number, now + 240 + number**2 * 3.3)  # within a week
    for number in range(waiting, waiting + 12):
        schedule(app, number, now - 30)
    app.delayq.hand_over()
    for number in range(waiting + 12, waiting + 18):
        schedule(app, number, now + 3600)
        app.delayq.cancel(id_of(number))
    app.delayq.reschedule(id_of(3), by=1800)
    # They are due, and their queue is paused.
    app.delayq.pause(queue="newsletter")
    for number in range(waiting + 18, waiting + 25):
        schedule(app, number, now - 600, "shop.send_newsletter", "newsletter")
    for number in range(waiting + 25, waiting + 28):
        schedule(app, number, now - 60, "shop.track_parcel", "parcels")
    take(app.delayq, "dead", *(id_of(waiting + number) for number in range(25, 28)))


def schedule(app, number, at, name=None, queue=None):
    kind, own_queue, argument, key, tags = KINDS[number % len(KINDS)]
    article = 1000 + number * 37 % 911
    options = {"delayq_key": key.format(article + number)} if key and not name else {}
    app.send_task(
        name or kind,
        (argument.format(article),),
        {"locale": "de"} if number % 4 == 0 else {},
        task_id=id_of(number),
        queue=queue or own_queue,
        delayq_at=at,
        delayq_tags=[tag.format(article % 60) for tag in tags],
        **options,
    )


def set_rules(app):
    """Set rules, after the tasks are there; one is paused."""
    every = app.delayq.every
    remind, invoice = app.tasks["shop.remind_of_cart"], app.tasks["shop.send_invoice"]
    every("digest", remind.s("all"), "0 9 * * mon-fri", tz="Europe/Berlin", tags=["mail"])
    for tenant in (7, 12):
        name, tags = f"invoices:tenant-{tenant}", [f"tenant:{tenant}", "billing"]
        every(name, invoice.s(f"tenant-{tenant}"), "*/15 * * * *", jitter=600, tags=tags)
    every("stock.poll-the-supplier-of-spare-parts", app.tasks["shop.reorder"].s("all"), 30)
    every("newsletter", app.tasks["shop.send_newsletter"].s("all"), "0 8 1 * *").pause()


def scan_once(app):
    """Let a scanner be seen."""
    for shard_steps in app.delayq.services.steps_by_shard():
        with closing(shard_steps):
            shard_steps.hand_over()
