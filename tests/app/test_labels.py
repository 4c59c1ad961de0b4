"""An entry carries labels that filters read: its task, and the queue that it was sent with."""

import pytest
from kombu import Exchange, Queue

from celery_delayq.core.message.outgoing import OutgoingMessage, dumps
from celery_delayq.core.store.record import FORM, labels_for
from tests.app.support import FAR


def labels(app, task_id):
    _, _, text, header_end, *_ = app.delayq.services.scripts[0].call("find", target=f"i{task_id}")
    return text[header_end + FORM - 13 : header_end + FORM]


@pytest.mark.parametrize("broker", ["store", "memory"])
def test_the_task_and_the_queue_by_name(delayq_app, url, broker):
    to = {"broker": url} if broker == "store" else {"broker": "memory://", "delayq_url": url}
    app = delayq_app(**to)

    plain = app.send_task("add", (1,), delayq_at=FAR).id
    other = app.send_task("add", (1,), delayq_at=FAR, queue="mail", priority=9).id

    assert labels(app, plain) == labels_for("add", "celery")
    assert labels(app, other) == labels_for("add", "mail")


@pytest.mark.parametrize("kind", ["topic", "direct"])
def test_the_queue_and_not_the_key_that_leads_to_it(delayq_app, url, kind):
    queue = Queue("mail", Exchange("letters", type=kind), routing_key="sent.fast")
    app = delayq_app(url, task_queues=[Queue("celery"), queue])

    task_id = app.send_task("add", (1,), delayq_at=FAR, queue="mail").id

    assert labels(app, task_id) == labels_for("add", "mail")


def test_the_routing_key_where_no_queue_is_known():
    message = {"headers": {"task": "add"}, "properties": {}}
    sent = OutgoingMessage(message, "letters", "sent.fast", [Exchange("letters")], b"", dumps)

    assert sent.labels == labels_for("add", "sent.fast")


def test_an_item_of_a_bulk_has_those_of_a_single_call(app, add):
    items = [((number,), {}) for number in range(3)]

    bulk = app.delayq.schedule_many(add.s().set(queue="mail"), items, at=FAR)

    assert {labels(app, task_id) for task_id in bulk.ids} == {labels_for("add", "mail")}
