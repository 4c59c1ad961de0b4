"""Real workers and callers send the signals and events of the table."""

import contextlib
import re
import socket
from collections import Counter

import pytest

from tests.app.support import FAR, LONG_AGO
from tests.readme.document import page
from tests.support.waiting import eventually
from tests.worker import telling

pytestmark = pytest.mark.libraries

NAME = re.compile(r"`([\w-]+)`")


def table():
    """The table of the page: each step -> its signals, its events."""
    lines = page("reference/signals").text.splitlines()
    rows = [line.strip("|").split("|") for line in lines if line.startswith("|")][2:]
    return {
        row[0].strip(): (NAME.findall(row[1]) + NAME.findall(row[2]), NAME.findall(row[3]))
        for row in rows
        if len(row) == 4  # the other tables have two columns
    }


class Watch:
    """The signals and events of tasks, from all processes together."""

    def __init__(self, project, connection, seen):
        self._project, self._connection, self._seen = project, connection, seen
        self._due = {}

    def expect(self, task_id, *steps):
        """Wait until a task has the signals and events of these steps, and of those before."""
        signals, events = self._due.setdefault(task_id, (Counter(), Counter()))
        for step in steps:
            for due, told in zip((signals, events), table()[step], strict=True):
                due.update(told)
        with contextlib.suppress(AssertionError):
            eventually(lambda: self._told(task_id) == (signals, events))
        assert self._told(task_id) == (signals, events)

    def all_as_expected(self):
        """Check that no task sent any more signals or events."""
        assert {task_id: self._told(task_id) for task_id in self._due} == self._due

    def _told(self, task_id):
        with contextlib.suppress(socket.timeout):
            while True:
                self._connection.drain_events(timeout=0.05)
        signals = self._project.evidence.lrange(telling.HEARD.format(task_id), 0, -1)
        events = [one["type"] for one in self._seen if one.get("uuid") == task_id]
        return Counter(name.decode() for name in signals), Counter(events)


@pytest.fixture(scope="module")
def project(standing):
    return standing(
        "-P",
        "prefork",
        "-c",
        "1",
        "-E",
        module="tests.worker.telling",
        task_send_sent_event=True,
        delayq_capture_eta=True,
    )


def hears(app, connection, seen):
    """Send an event of no task; return whether any event has come, so that none is missed."""
    with app.events.default_dispatcher() as dispatcher:
        dispatcher.send("test-hello")
    with contextlib.suppress(socket.timeout):
        connection.drain_events(timeout=0.05)
    return seen


@pytest.fixture
def watch(project):
    seen, app = [], project.app
    telling.listen(lambda: project.evidence)
    with app.connection_for_read() as given:
        receiver = app.events.Receiver(given, handlers={"*": seen.append})
        with receiver.consumer_context() as (connection, *_):
            eventually(lambda: hears(app, connection, seen))
            made = Watch(project, connection, seen)
            yield made
            made.all_as_expected()
    telling.stop_listening()


def test_a_task_that_waits_and_runs(project, watch):
    result = project.tasks["add"].delay_until(FAR, 1, 2)
    watch.expect(result.id, "scheduled")
    project.delayq.reschedule(result, FAR + 1)
    watch.expect(result.id, "moved, or told to run now")
    project.delayq.edit(result, args=[3, 4])
    watch.expect(result.id, "edited")
    project.delayq.run_now(result)
    watch.expect(
        result.id, "moved, or told to run now", "delivered", "received", "runs, and succeeds"
    )
    assert result.get(timeout=30) == 7


def test_a_retry_that_waits_and_is_cancelled(project, watch):
    result = project.tasks["persist"].delay_until(LONG_AGO, 1, 3600)
    watch.expect(
        result.id, "scheduled", "delivered", "received", "runs, and retries later", "scheduled"
    )
    assert project.delayq.cancel(result)
    watch.expect(result.id, "cancelled, or replaced")


def test_a_task_that_puts_itself_off(project, watch):
    result = project.tasks["later"].delay_until(LONG_AGO, 3600)
    watch.expect(
        result.id, "scheduled", "delivered", "received", "runs, and defers itself", "scheduled"
    )


def test_a_task_that_is_too_late(project, watch):
    options = {"delayq_at": LONG_AGO, "delayq_late": "skip", "delayq_grace": 1}
    result = project.tasks["add"].apply_async((1, 2), **options)
    watch.expect(result.id, "scheduled", "skipped as too late")
