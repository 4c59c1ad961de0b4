"""Calls of an event loop: each in a thread, and taken back if its coroutine was cancelled."""

import asyncio
import os
import signal
import threading
from functools import partial

import pytest

from celery_delayq import InvalidDueTime, Outcome
from celery_delayq.core.hooks import Hooks, actor
from celery_delayq.core.integration.results import take_back
from celery_delayq.core.threads import THREADS, in_thread
from celery_delayq.errors import InvalidOption, StoreFull, StoreUnavailable
from tests.app.support import FAR, LONG_AGO
from tests.support.children import in_child
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.libraries


def noting(app):
    @app.task(name="note")
    def note(number):
        pass

    return note


@pytest.fixture
def note(app):
    return noting(app)


@pytest.fixture
def slow(delayq_app, start_redis):
    """An app's task, and its Redis, which the test can stop."""
    server = start_redis()
    app = delayq_app(server.url(), delayq_timeout=60)
    app.delayq.counts()  # connected
    assert not app.producer_pool._dirty  # Celery up to 5.4 makes two, if two threads want the first
    return server, app.delayq, noting(app)


def ids(delayq):
    return [task.id for task in delayq.tasks()]


WAYS = {
    "task": lambda _, note: note.adelay_for(60, 42),
    "task, at": lambda _, note: note.adelay_until(FAR, 42),
    "signature": lambda _, note: note.s(42).adelay_for(60),
    "signature, at": lambda _, note: note.s().adelay_until(FAR, 42),
    "schedule": lambda delayq, note: delayq.aschedule(note.s(42), after=60, key="k"),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_call_schedules_as_the_one_that_blocks(delayq, note, way):
    result = asyncio.run(way(delayq, note))
    assert delayq.get(result).args == (42,)
    assert result.cancel() is Outcome.DONE


def test_each_call_on_one_task_answers_as_the_one_that_blocks(delayq, note):
    async def main():
        result = await note.adelay_until(FAR, 42)
        moved = await delayq.areschedule(result, after=5)
        task = await delayq.aget(result)
        return [moved, task, await delayq.arun_now(result), await delayq.acancel(result)]

    moved, task, *done = asyncio.run(main())
    assert [moved, *done] == [Outcome.DONE] * 3
    assert (task.args, task.revision > 0) == ((42,), True)
    assert ids(delayq) == []


def test_each_call_on_many_answers_as_the_one_that_blocks(delayq, note):
    async def main():
        for number in range(3):
            await delayq.aschedule(note.s(number), at=FAR, tags=["x"])
        chosen = await delayq.aselect(tag="x")
        calls = chosen.acount(), chosen.areschedule(by=5), chosen.arun_now(), chosen.acancel()
        return [await call for call in calls]

    assert asyncio.run(main()) == [3, 3, 3, 3]
    assert ids(delayq) == []


def test_the_event_loop_goes_on_while_calls_wait_for_redis(slow):
    server, delayq, note = slow

    async def main():
        calls = [asyncio.create_task(note.adelay_for(60, number)) for number in range(THREADS + 1)]
        await asyncio.sleep(0)
        # The loop's own threads are free, too.
        await asyncio.to_thread(server.resume)
        return await asyncio.gather(*calls)

    server.pause()
    results = asyncio.run(main())

    assert sorted(ids(delayq)) == sorted(result.id for result in results)


def test_eight_calls_go_on_at_once():
    together = threading.Barrier(THREADS)

    async def main():
        await asyncio.gather(*(in_thread(partial(together.wait, PATIENCE)) for _ in range(THREADS)))

    asyncio.run(main())


async def cancelled(call, has_begun=lambda: True):
    """Cancel a coroutine, once a thread makes its call."""
    task = asyncio.ensure_future(call)
    await asyncio.sleep(0)
    while not has_begun():
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def is_made(delayq):
    """Whether a call is made just now: it keeps one of Celery's producers."""
    return lambda: delayq.app.producer_pool._dirty


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_task_is_cancelled_whose_coroutine_was_cancelled_meanwhile(slow, way):
    server, delayq, note = slow
    found = []
    delayq.services.hooks.add(Hooks(cancelled=found.extend))

    async def main():
        await cancelled(way(delayq, note), is_made(delayq))
        server.resume()

    server.pause()
    asyncio.run(main())

    eventually(lambda: found)
    assert ids(delayq) == []


def test_an_earlier_task_stays_that_a_cancelled_call_kept(delayq, note):
    earlier = delayq.schedule(note.s(1), at=FAR, key="k")
    take_back(delayq.schedule(note.s(2), at=FAR, key="k", conflict="keep"))
    assert ids(delayq) == [earlier.id]


def test_a_call_is_not_made_whose_coroutine_was_cancelled_before_a_thread_had_it():
    go, made = threading.Event(), []

    async def main():
        blocked = [asyncio.create_task(in_thread(go.wait)) for _ in range(THREADS)]
        await asyncio.sleep(0)
        await cancelled(in_thread(partial(made.append, 1)))
        go.set()
        await asyncio.gather(*blocked)
        await in_thread(lambda: None)

    asyncio.run(main())
    assert made == []


def test_a_shielded_call_goes_on(slow):
    server, delayq, note = slow

    async def main():
        call = asyncio.ensure_future(note.adelay_for(60, 42))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(call), 0.01)
        server.resume()
        return await call

    server.pause()
    result = asyncio.run(main())

    assert ids(delayq) == [result.id]


def cancelled_in_its_thread(call, *rest):
    """Cancel the coroutine of a call while a thread makes it; return when the thread has ended."""
    begun, go = threading.Event(), threading.Event()

    def held():
        begun.set()
        go.wait()
        return call()

    async def main():
        await cancelled(in_thread(held, *rest), begun.is_set)
        go.set()
        await asyncio.gather(*(in_thread(lambda: None) for _ in range(THREADS)))

    asyncio.run(main())


def failing(error):
    def fail(*_):
        raise error

    return fail


def test_a_call_that_cannot_be_taken_back_is_a_line_in_the_log(caplog):
    cancelled_in_its_thread(lambda: None, failing(OSError("away")))
    eventually(lambda: "could not be taken back: away" in caplog.text)


def test_the_loop_does_not_wait_for_a_call_to_be_taken_back_that_was_answered_just_now(delayq):
    go, taken = threading.Event(), []

    async def main():
        task = asyncio.ensure_future(in_thread(go.wait, lambda _: taken.append(current())))
        await asyncio.sleep(0)
        go.set()  # not before, or the coroutine may find the answer there
        # Without a step of the loop: the thread has the answer, and the coroutine has not.
        eventually(lambda: asyncio.get_running_loop()._ready)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    def current():
        return threading.current_thread(), actor()

    with delayq.acting("ann"):
        asyncio.run(main())
    [(thread, author)] = eventually(lambda: taken)
    assert thread is not threading.current_thread()
    assert author == "ann"


def test_a_cancelled_call_that_fails_has_nothing_to_take_back(caplog):
    taken = []
    cancelled_in_its_thread(failing(OSError("away")), taken.append)
    assert (taken, caplog.text) == ([], "")


def unanswered(task_id=""):
    error = StoreUnavailable("schedule", "no answer")
    error.task_id = task_id
    return error


LOST = {
    "a call that schedules": (unanswered("a"), "", ["task a: its coroutine"]),
    "a change of one task": (unanswered(), "b", ["task b: its coroutine"]),
    "a change of many": (unanswered(), "", ["a coroutine"]),
    "a call that did not reach Redis": (StoreUnavailable("schedule", "no", False), "", []),
    "a full Redis": (StoreFull("schedule", "OOM"), "", []),
}


@pytest.mark.parametrize(("error", "about", "begins"), LOST.values(), ids=LOST)
def test_a_cancelled_call_that_may_have_taken_effect_is_a_line_in_the_log(
    caplog, error, about, begins
):
    cancelled_in_its_thread(failing(error), lambda _: None, about)
    said = "was cancelled, and whether its call took effect is unknown: schedule failed: no answer"
    eventually(lambda: caplog.messages == [f"{one} {said}" for one in begins])


def test_a_cancelled_call_of_a_task_that_has_left_is_a_line_in_the_log(delayq, note, caplog):
    result = note.delay_until(LONG_AGO, 1)
    delayq.hand_over()

    take_back(result)

    said = "its coroutine was cancelled, and it was too late to cancel the task: handed_over"
    assert caplog.messages[-1] == f"task {result.id}: {said}"


def test_the_author_of_a_change_is_known_in_the_thread(delayq):
    seen = []

    async def main():
        with delayq.acting("ann"):
            await in_thread(lambda: seen.append(actor()))

    asyncio.run(main())
    assert seen == ["ann"]


BAD = {
    "time": (lambda _, note: note.adelay_for("soon", 42), InvalidDueTime),
    "arguments": (lambda _, note: note.adelay_for(60), TypeError),
    "option": (lambda delayq, note: delayq.aschedule(note.s(1), after=1, key=""), InvalidOption),
    "task": (lambda delayq, _: delayq.acancel(None), InvalidOption),
    "filter": (lambda delayq, _: delayq.aselect(), InvalidOption),
}


@pytest.mark.parametrize(("call", "error"), BAD.values(), ids=BAD)
def test_a_wrong_call_raises_as_the_one_that_blocks_and_writes_nothing(delayq, note, call, error):
    with pytest.raises(error):
        asyncio.run(call(delayq, note))
    assert ids(delayq) == []


def test_a_forked_child_has_threads_of_its_own():
    assert asyncio.run(in_thread(os.getpid)) == os.getpid()
    child = os.fork()
    if not child:
        signal.alarm(round(PATIENCE))
        os._exit(asyncio.run(in_thread(os.getpid)) != os.getpid())
    assert os.waitpid(child, 0)[1] == 0


def test_a_child_that_c_forked_has_threads_of_its_own():
    assert asyncio.run(in_thread(os.getpid)) == os.getpid()
    assert in_child(lambda: b"%d" % (asyncio.run(in_thread(os.getpid)) == os.getpid())) == b"1"
