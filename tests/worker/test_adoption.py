"""Messages with a far `eta` from a process without this package: workers hold them in the store."""

from datetime import datetime, timedelta, timezone

import pytest

from tests.support.redis_server import RedisServer
from tests.support.strangers import stranger
from tests.support.waiting import eventually

ADOPTING = {"delayq_adopt_after": 60}


@pytest.fixture(scope="module", params=["rabbitmq", "redis"])
def broker(request, server):
    """Its URL, and how many of a queue's messages are with workers."""
    if request.param == "rabbitmq":
        rabbit = request.getfixturevalue("rabbitmq_server")

        def with_workers(queue):
            columns = ("name", "messages_unacknowledged")
            listed = rabbit.control("-q", "list_queues", *columns).splitlines()
            return sum(int(line.split()[1]) for line in listed if line.split()[0] == queue)

        yield rabbit.url, with_workers
    else:
        with RedisServer() as one:
            yield one.url(), lambda _: one.client().hlen("unacked")


@pytest.fixture(scope="module", params=["prefork", "threads", "solo", "gevent"])
def project(request, standing, server, broker):
    one = standing(
        *("-P", request.param, "-c", "2"),
        broker_url=broker[0],
        delayq_url=server.url(),
        **ADOPTING,
    )
    one.unacked = lambda: broker[1](one.queue)
    return one


@pytest.fixture(scope="module")
def sender(project):
    with stranger(project.conf["broker_url"], project.queue) as app:
        yield app


def prefetch(project):
    name = project.worker.name
    # A worker that has just started may miss the first question.
    inspect = project.app.control.inspect([name], timeout=2, limit=1)
    return eventually(inspect.stats)[name]["prefetch_count"]


def held(project, ids):
    eventually(lambda: all(project.delayq.get(one) for one in ids))
    return [project.delayq.get(one) for one in ids]


def test_it_waits_in_the_store_and_the_worker_is_as_if_it_had_never_come(project, sender):
    before = prefetch(project)
    due = datetime.now(timezone.utc) + timedelta(hours=1)

    ids = [sender.send_task("note", (number,), eta=due).id for number in range(30)]

    assert [(one.due, one.args) for one in held(project, ids)] == [
        (one.due, (number,)) for number, one in enumerate(held(project, ids))
    ]
    assert {abs((one.due - due).total_seconds()) < 0.001 for one in held(project, ids)} == {True}
    eventually(lambda: project.unacked() == 0)
    eventually(lambda: prefetch(project) == before)
    project.delayq.select(all=True).cancel()
