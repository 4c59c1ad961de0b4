"""A task shows the same queue name as selections, pauses, `status` and a dump."""

import pytest
from kombu import Exchange, Queue

from tests.app.support import FAR
from tests.support.shards import SHARDS

pytestmark = pytest.mark.libraries

VIDEO = Queue("video", Exchange("media", type="topic"), routing_key="media.video.#")
WAYS = {
    "queue": ({"queue": "mail", "priority": 9}, "mail"),
    "queue of a topic exchange": ({"queue": "video"}, "video"),
    "and a key of the call": ({"queue": "video", "routing_key": "media.video.hd"}, "video"),
    "exchange and key": ({"exchange": "none of the app's", "routing_key": "x"}, "celery"),
    "queue, and another list": ({"queue": "video", "exchange": "", "routing_key": "x"}, "video"),
}


def queues(delayq):
    """The queue of the only task, by every way of reading it."""
    [listed] = delayq.tasks()
    [selected] = delayq.select(all=True)
    [counted] = delayq.status().queues
    [_, dumped, _] = delayq.dump()
    told = [listed.queue, selected.queue, delayq.get(listed.id).queue, counted.queue]
    return {*told, dumped.get("queue", "")}


@pytest.mark.parametrize(("sent", "queue"), WAYS.values(), ids=WAYS.keys())
def test_every_reader_names_the_same_queue(delayq_app, url, sent, queue):
    app = delayq_app(url, task_queues=[Queue("celery"), VIDEO])
    app.send_task("t", delayq_at=FAR, **sent)

    assert queues(app.delayq) == {queue}
    assert app.delayq.select(queue=queue).count() == 1


@pytest.mark.parametrize("name", ["mail", "video"])
def test_an_app_that_does_not_know_the_queue_is_told_by_where_the_task_goes(delayq_app, url, name):
    app = delayq_app(url, task_queues=[Queue("mail"), VIDEO])
    app.send_task("t", queue=name, delayq_at=FAR)

    assert queues(delayq_app(url).delayq) == {name}


def test_history_names_the_same_queue(delayq_app, url):
    app = delayq_app(url, task_queues=[VIDEO], delayq_history=10)
    app.send_task("t", queue="video", delayq_at=FAR)

    [event] = app.delayq.history()

    assert {event.queue} == queues(app.delayq)


def by_other_lists(delayq_app, url, times):
    """Schedule tasks for ``mail``, whose list has another app's separator of priorities."""
    app = delayq_app(url, broker_transport_options={"sep": ":"})
    for number in range(times):
        app.send_task("t", queue="mail", priority=9, delayq_at=FAR + number)
    return app


def test_the_name_of_an_undeclared_queue_is_that_of_the_list_as_in_status(delayq_app, url):
    by_other_lists(delayq_app, url, 1)
    [task] = (other := delayq_app(url).delayq).tasks()

    assert [one.queue for one in other.status().queues] == [task.queue] == ["mail:9"]


def test_the_name_of_a_paused_queue_is_known_and_read_once(delayq_app, url, between):
    by_other_lists(delayq_app, url, 50).delayq.pause(queue="mail")
    other = delayq_app(url).delayq
    between.asked.clear()

    assert {task.queue for task in other.tasks()} == {"mail"}
    assert between.asked["pauses"] == SHARDS


def test_a_name_that_the_app_knows_costs_no_look_at_the_store(app, delayq, between):
    task_id = app.send_task("t", queue="mail", delayq_at=FAR).id

    assert [task.queue for task in delayq.tasks()] == ["mail"]
    assert delayq.get(task_id).queue == "mail"
    assert not between.asked["pauses"]
