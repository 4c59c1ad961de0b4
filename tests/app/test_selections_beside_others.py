"""Selections during concurrent changes, and from another process."""

import subprocess
import sys
import threading

import pytest

from tests.app.support import FAR, LONG_AGO, lists


@pytest.fixture
def add(app):
    @app.task(name="add")
    def add(x=0):
        return x

    return add


RESUME = """
import sys
from celery import Celery
from celery_delayq import DelayQ
delayq = DelayQ(Celery("tests", broker=sys.argv[1]))
print(*(task.id for task in delayq.select(tag="t", cursor=sys.argv[2])))
"""


def test_a_thousand_of_one_due_time_go_on_in_another_process(delayq, add, url):
    tagged = add.s().set(delayq_tags=["t"])
    assert delayq.schedule_many(tagged, [((), {}, FAR)] * 1000)
    selection = delayq.select(tag="t")
    walk = iter(selection)
    first = [next(walk).id for _ in range(333)]
    process = subprocess.run(
        [sys.executable, "-c", RESUME, url, selection.cursor],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    rest = process.stdout.split()
    assert (len(rest), len({*first, *rest})) == (667, 1000)


@pytest.mark.parametrize("given", [{"tag": "t"}, {"task": "add"}, {"state": "SCHEDULED"}])
def test_beside_others_at_work_each_task_ends_once_and_new_ones_stay(delayq, add, redis, given):
    """Tasks are moved, cancelled, delivered and scheduled while a selection is cancelled."""
    dues = [LONG_AGO if number % 4 == 0 else FAR for number in range(400)]
    items = [((), {}, due, f"{number:03}") for number, due in enumerate(dues)]
    assert delayq.schedule_many(add.s().set(delayq_tags=["t"]), items)
    selection, begun = delayq.select(**given), threading.Event()
    cancelled, new = [], []

    def others():
        begun.wait(30)
        for number in range(399, 0, -1):
            delayq.reschedule(f"{number:03}", by=1)
            if number % 4 == 1:
                cancelled.append(bool(delayq.cancel(f"{number:03}")))
            if number % 20 == 0:
                delayq.hand_over()
                new.append(add.apply_async(delayq_at=FAR, delayq_tags=["t"]).id)

    thread = threading.Thread(target=others)
    thread.start()
    count = selection.cancel(progress=lambda _: begun.set())
    thread.join()

    left = sum(map(len, lists(redis).values()))
    assert count + sum(cancelled) + left == 400
    assert (count > 0, delayq.select(all=True).count()) == (True, len(new))


def test_beside_others_at_work_what_stays_is_read_once(delayq, add):
    items = [((), {}, FAR, f"{number:03}") for number in range(300)]
    assert delayq.schedule_many(add.s().set(delayq_tags=["t"]), items)
    done = threading.Event()

    def others():
        while not done.is_set():
            for number in range(0, 300, 7):
                delayq.reschedule(f"{number:03}", by=-1)
            add.apply_async(task_id=f"new{number}", delayq_at=FAR, delayq_conflict="replace")

    thread = threading.Thread(target=others)
    thread.start()
    try:
        for given in ({"tag": "t"}, {"task": "add", "before_due": FAR + 1}):
            met = [task.id for task in delayq.select(**given) if not task.id.startswith("new")]
            assert met == [f"{number:03}" for number in range(300)]
    finally:
        done.set()
        thread.join()
