"""One app, many threads: no call gets the message, time or reply of another one."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from celery_delayq import AlreadyScheduled
from celery_delayq.errors import StoreUnavailable
from tests.app.network import Listener, hang_up
from tests.app.support import FAR, LONG_AGO
from tests.support.waiting import PATIENCE

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


def test_of_many_that_schedule_one_id_one_wins_and_the_others_are_told(add, delayq):
    def schedule(number):
        try:
            add.s(number).set(task_id="a").delay_until(FAR)
        except AlreadyScheduled:
            return None
        return number

    with ThreadPoolExecutor(THREADS) as pool:
        [winner] = [one for one in pool.map(schedule, range(CALLS)) if one is not None]

    assert delayq.get("a").args == (winner,)


def test_of_many_that_cancel_one_id_one_is_told_that_it_did(add, delayq):
    for _ in range(5):
        result = add.delay_until(FAR, 1)
        with ThreadPoolExecutor(THREADS) as pool:
            outcomes = list(pool.map(delayq.cancel, [result.id] * THREADS))

        assert sum(map(bool, outcomes)) == 1


def test_cancel_and_hand_over_at_once_agree_on_every_entry(delayq_app, url, redis):
    app = delayq_app(url, delayq_batch_size=2)
    ids = [app.send_task("t", delayq_at=LONG_AGO + number).id for number in range(THREADS * CALLS)]

    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(app.delayq.hand_over)
        # From the other end, so that they meet somewhere in the middle.
        cancelled = [one for one in reversed(ids) if app.delayq.cancel(one)]

    sent = {json.loads(raw)["headers"]["id"] for raw in redis.lrange("celery", 0, -1)}
    assert moving.result() == len(sent)
    assert sent.isdisjoint(cancelled)
    assert sent.union(cancelled) == set(ids)


def test_an_event_loop_goes_on_while_a_call_waits_in_a_thread(delayq_app, delayq, add):
    result = asyncio.run(asyncio.to_thread(add.delay_for, 60, 1))
    assert delayq.get(result.id).args == (1,)

    asked, over = threading.Event(), threading.Event()

    def silent(connection):
        asked.set()
        over.wait(PATIENCE)
        hang_up(connection)

    async def call(task):
        called = asyncio.create_task(asyncio.to_thread(task.delay_for, 60))
        assert await asyncio.to_thread(asked.wait, PATIENCE)
        assert not called.done()
        over.set()
        with pytest.raises(StoreUnavailable):
            await called

    with Listener(silent) as hung:
        app = delayq_app(f"redis://127.0.0.1:{hung.port}/0", delayq_timeout=60)
        asyncio.run(call(app.signature("t")))
