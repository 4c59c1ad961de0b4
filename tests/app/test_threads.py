"""One app in many threads: calls do not mix, and block no other."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.app.support import FAR
from tests.app.test_await import slow
from tests.support.waiting import eventually

__all__ = ["slow"]

pytestmark = pytest.mark.libraries

THREADS, CALLS = 8, 40


def test_calls_from_many_threads_do_not_mix(add, delayq):
    def schedule(number):
        options = {"queue": f"q{number % 5}", "priority": number % 10, "headers": {"n": number}}
        return add.s(number, y=str(number)).set(**options).delay_until(FAR + number)

    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(schedule, range(THREADS * CALLS)))

    for number, result in enumerate(results):
        task = delayq.get(result.id)
        assert (task.args, task.kwargs) == ((number,), {"y": str(number)})
        assert (task.queue, task.due.timestamp()) == (f"q{number % 5}", FAR + number)
        assert json.loads(delayq.services.entries.find(result.id).message)["headers"]["n"] == number
    assert delayq.counts().scheduled == len(results)


def test_a_call_keeps_one_of_celery_s_producers_of_which_there_are_ten(slow):
    server, delayq, note = slow
    producers = delayq.app.producer_pool
    server.pause()
    thread = threading.Thread(target=note.delay_for, args=(60, 42))
    thread.start()
    eventually(lambda: len(producers._dirty) == 1)
    server.resume()
    thread.join()

    assert (len(producers._dirty), producers.limit) == (0, 10)
