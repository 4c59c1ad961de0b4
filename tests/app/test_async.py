"""Callers in an event loop: a call in a thread blocks no coroutine, and outlives its waiter."""

import asyncio
import threading

import pytest

from tests.app.support import FAR
from tests.support.waiting import eventually

pytestmark = pytest.mark.libraries


@pytest.fixture
def slow(delayq_app, start_redis):
    """An app, and its task, whose Redis the test can stop."""
    server = start_redis()
    app = delayq_app(server.url(), delayq_timeout=60)

    @app.task(name="note")
    def note(number):
        pass

    note.delay_until(FAR, 0)
    return server, app.delayq, note


def test_the_event_loop_goes_on_while_a_call_waits_for_redis(slow):
    server, delayq, note = slow

    async def main():
        call = asyncio.create_task(asyncio.to_thread(note.delay_for, 60, 42))
        await asyncio.sleep(0)
        server.resume()  # by the same loop, which the call does not block
        return await call

    server.pause()
    result = asyncio.run(main())

    assert delayq.get(result.id).args == (42,)


def test_a_coroutine_that_is_cancelled_takes_nothing_back(slow):
    server, delayq, note = slow
    begun = threading.Event()

    def call():
        begun.set()
        note.s(42).set(task_id="cancelled").delay_for(60)

    async def main():
        waiting = asyncio.create_task(asyncio.to_thread(call))
        await asyncio.to_thread(begun.wait)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        server.resume()

    server.pause()
    asyncio.run(main())

    assert eventually(lambda: delayq.get("cancelled")).args == (42,)


def test_a_call_keeps_one_of_celery_s_producers_of_which_there_are_ten(slow):
    server, delayq, note = slow
    producers = delayq.app.producer_pool

    def in_use():
        return len(producers._dirty)

    server.pause()
    thread = threading.Thread(target=note.delay_for, args=(60, 42))
    thread.start()
    eventually(lambda: in_use() == 1)
    server.resume()
    thread.join()

    assert in_use() == 0
    assert producers.limit == 10
