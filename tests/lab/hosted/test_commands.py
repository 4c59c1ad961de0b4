"""Servers without the commands that hosted services remove, or forbid to a user."""

import pytest
from prometheus_client import CollectorRegistry

from celery_delayq import Outcome
from celery_delayq.contrib.care.doctor import examine
from celery_delayq.contrib.metrics import Collector
from celery_delayq.core.servers.risks import ERROR, WARNING
from tests.lab.hosted.servers import (
    CELERYS,
    SPARE,
    HostedServer,
    all_but,
    as_user,
    documented_but,
    forbid,
)
from tests.metrics.support import Scrape
from tests.support.waiting import eventually
from tests.worker.project import TASKS

pytestmark = pytest.mark.libraries

LONG_AGO = 1_000_000_000
DEAF = "Redis refused SUBSCRIBE, so a task due before all others"


def left_out(make_project, results):
    """The broker's Redis is the store, and has none of these commands."""
    with HostedServer(*SPARE) as server:
        yield make_project(server, result_backend=results)


def left_out_of_the_store(make_project, _results):
    """The store's Redis has even fewer: no Celery worker could use it as its broker."""
    with HostedServer(*SPARE, *CELERYS) as store:
        yield make_project(delayq_url=store.url())


def forbidden(make_project, results):
    """The broker's Redis is the store, and its user may send none of these commands."""
    with HostedServer() as server:
        url = as_user(forbid(server, *all_but(*SPARE)), server.url())
        yield make_project(server, broker_url=url, result_backend=results)


def forbidden_in_the_store(make_project, _results):
    """The store's user lacks some of the rights that the page lists."""
    with HostedServer() as store:
        login = forbid(
            store,
            "~{project*:*}:*",
            *documented_but("client|setname", "subscribe", "publish", "ping"),
        )
        yield make_project(delayq_url=as_user(login, store.url()))


@pytest.fixture(params=[left_out, left_out_of_the_store, forbidden, forbidden_in_the_store])
def project(request, make_project, server):
    yield from request.param(make_project, server.url(1))


def test_a_worker_and_its_callers_do_without(project, start_worker):
    delayq, note = project.delayq, project.tasks["note"]
    is_direct = delayq.services.store_is_broker
    worker = start_worker(TASKS, "-P", "solo", env=project.env)
    worker.wait_log(r"scanner \S+ started: ")

    soon = note.delay_for(0.2)
    bulk = delayq.schedule_many(note, [((number,), {}) for number in range(20)], after=0.2)
    gone, moved = note.delay_for(3600), note.delay_for(3600)
    assert gone.cancel() is Outcome.DONE
    assert gone.state == "REVOKED"
    assert moved.reschedule(after=0)
    assert delayq.edit(note.s().set(task_id="e").delay_for(3600).id, args=(5,))
    assert delayq.get("e").args == (5,)
    tagged = note.s().set(delayq_tags=["user:7"])
    assert len([tagged.delay_for(3600) for _ in range(3)]) == 3
    assert delayq.select(tag="user:7").cancel() == 3
    delayq.pause(queue=project.queue)
    held = note.apply_async(delayq_at=LONG_AGO)
    eventually(lambda: held.state == "PAUSED")
    assert [pause.queue for pause in delayq.pauses()] == [project.queue]
    assert delayq.resume(queue=project.queue)

    for result in (soon, moved, held, *bulk.ids):
        [run] = project.wait_runs(result)
        assert run["at"] >= run["due"]
        assert run["attempt"] == (None if is_direct else 1)
    assert [task.id for task in delayq.tasks()] == ["e"]
    # A worker without CPU time for its heartbeat may look dead for a moment.
    eventually(lambda: len(delayq.status().scanners) == 1)
    eventually(lambda: delayq.health() == [])
    counts = delayq.status().counts
    assert (counts.scheduled, counts.dead) == (1, 0)
    assert list(delayq.check()) == []
    registry = CollectorRegistry()
    registry.register(Collector(delayq))
    assert Scrape.of(registry)["store_up"] == 1
    assert project.app.control.inspect(timeout=10, limit=1).delayq()
    assert delayq.cancel("e")

    assert worker.stop() == 0
    assert sum(DEAF in line for line in worker.lines) == (0 if is_direct else 1)
    assert not any("ERROR" in line or "Traceback" in line for line in worker.lines), worker.tail()


def test_the_doctor_tells_of_each_command_that_is_missing(make_project):
    with HostedServer("subscribe", "publish", "ping", "zcount") as store:
        project = make_project(delayq_url=store.url())
        found = [line for line in examine(project.delayq.services) if line.name == "rights"]
    [needed, forgiven] = found
    assert (needed.level, forgiven.level) == (ERROR, WARNING)
    refused = "this Redis does not let its user run"
    assert needed.found.startswith(f"{refused} zcount: ")
    assert forgiven.found.startswith(f"{refused} publish, subscribe: ")
