"""The page of a task that was delivered asks the workers that are there."""

import pytest

from celery_delayq.contrib.web import wsgi
from tests.support.waiting import PATIENCE, eventually
from tests.web.conftest import Browser

SECONDS = 600


@pytest.fixture
def asked(crew):
    """Ask until the page has a sentence: a worker that gets no CPU answers too late."""
    browser = Browser(wsgi(crew.delayq, allow=lambda _: "write"))

    def asked(result, sentence):
        eventually(lambda: sentence in browser.get("/task", id=result.id, ask="1").text, PATIENCE)

    return asked


def test_a_real_worker_says_whether_it_runs_a_task_has_it_or_does_not(crew, asked):
    hold, name = crew.tasks["hold"], crew.worker.name
    running = [crew.delayq.schedule(hold.s(SECONDS), after=0) for _ in range(2)]
    for one in running:
        crew.wait_runs(one)
    next_one = crew.delayq.schedule(hold.s(SECONDS), after=0)
    eventually(lambda: crew.delayq.get(next_one.id) is None)
    elsewhere = crew.delayq.schedule(hold.s(SECONDS).set(queue="nobody-reads-it"), after=0)
    eventually(lambda: crew.delayq.get(elsewhere.id) is None)

    asked(running[0], f"Worker {name} runs it.")
    asked(next_one, f"Worker {name} has it, and has not begun.")
    asked(elsewhere, "1 worker answered, and none has it: it is in its queue still")

    for one in (*running, next_one):
        crew.evidence.rpush(f"gate:{one.id}", "1")
    crew.wait_runs(next_one, 2)
    asked(next_one, "1 worker answered, and none has it: it is in its queue still, has ended")


def test_a_key_is_held_as_the_worker_of_its_task_said_and_its_page_asks_the_workers(crew, asked):
    browser = Browser(wsgi(crew.delayq, allow=lambda _: "write"))
    task = crew.tasks["hold"].s(SECONDS)
    held = crew.delayq.schedule(task, after=0, key="asked", unique_until="finished")
    crew.wait_runs(held)

    eventually(lambda: "or when it ends as its worker said" in browser.get("/keys").text)
    there = browser.get("/key", key="asked").url('href="([^"]*)">Ask the workers')
    eventually(lambda: f"Worker {crew.worker.name} runs it." in browser.get(there).text)

    crew.evidence.rpush(f"gate:{held.id}", "1")
    eventually(lambda: "asked" not in browser.get("/keys").text)
