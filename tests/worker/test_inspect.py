"""`celery inspect scheduled`, and tools that send the same request, show the store's tasks."""

import json

import pytest

from tests.support.waiting import PATIENCE
from tests.worker.test_revoke import WITHIN, celery

pytestmark = pytest.mark.libraries


def test_every_worker_that_gets_the_request_shows_waiting_tasks(crew):
    result = crew.tasks["note"].s(1, "two").set(priority=3).delay_for(3600)

    done = celery(crew, "inspect", *WITHIN, "-d", crew.worker.name, "--json", "scheduled")

    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)[crew.worker.name]
    [one] = [one for one in shown if one["request"]["id"] == result.id]
    assert one["eta"] == result.due.isoformat()
    assert one["request"]["name"] == "note"
    assert one["request"]["args"] == "(1, 'two')"
    assert one["request"]["delivery_info"]["routing_key"] == crew.queue
    result.cancel()


def test_every_worker_that_is_asked_for_a_task_shows_it_where_it_waits(crew):
    result = crew.tasks["note"].s(1, "two").delay_for(3600)

    named = celery(
        crew, "inspect", *WITHIN, "-d", crew.worker.name, "--json", "query_task", result.id
    )
    inspect = crew.app.control.inspect([crew.worker.name], timeout=PATIENCE)
    [state, shown] = inspect.query_task(result.id)[crew.worker.name][result.id]

    assert json.loads(named.stdout)[crew.worker.name] == {result.id: [state, shown]}
    assert (state, shown["name"], shown["args"]) == ("scheduled", "note", "(1, 'two')")
    result.cancel()
