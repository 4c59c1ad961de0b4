"""One app in many threads: calls do not mix, and block no other."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.app.support import FAR, noop
from tests.support.waiting import eventually

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


@pytest.fixture
def slow(delayq_app, start_redis):
    """An app, and its task, whose Redis the test can stop."""
    server = start_redis()
    app = delayq_app(server.url(), delayq_timeout=60)
    note = app.task(name="note")(noop)
    note.delay_until(FAR, 0)
    return server, app.delayq, note


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
