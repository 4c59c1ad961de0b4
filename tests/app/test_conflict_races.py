"""Keys under concurrency, and with killed callers: one task waits, and no caller hangs."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from celery import states

from tests.app.conflicts import owed, told, waiting
from tests.app.conftest import app_with_results as app
from tests.app.support import FAR
from tests.app.test_outbox import drain
from tests.support.forked import run_forked
from tests.support.shards import SHARDS, total
from tests.support.worker import ROOT

__all__ = ["app", "drain"]

CALLERS = 100


def at_once(calls):
    """Run each call in its own thread, all starting together; return their answers."""
    together = threading.Barrier(len(calls))

    def run(call):
        together.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [*pool.map(run, calls)]


def successors(ids, app):
    """Each id with the id of its task's successor, as in its result."""
    reasons = {one: told(one, app) for one in ids}
    return {
        one: why.removeprefix("replaced by ")
        for one, (state, why) in reasons.items()
        if state == states.REVOKED
    }


def test_of_many_that_replace_one_another_the_last_waits_and_each_other_names_the_next(
    app, add, delayq, redis
):
    def call(number):
        signature = add.s(number)  # here, as Celery's proxies of tasks are not made for threads
        return lambda: delayq.schedule(signature, at=FAR, key="k", conflict="replace")

    results = at_once([call(number) for number in range(CALLERS)])

    assert len(results) == CALLERS
    [(last, (number,))] = waiting(delayq).items()
    named = successors([result.id for result in results], app)
    assert named.keys() == {result.id for result in results} - {last}
    assert Counter(named.values()).most_common(1)[0][1] == 1, "each is replaced by a different task"
    one, row = next(iter(named.keys() - set(named.values()))), 1
    while one in named:
        one, row = named[one], row + 1
    assert (one, row) == (last, CALLERS), "one chain of all tasks, which ends with the waiting one"
    assert delayq.get(last).args == (number,)
    assert owed(redis) == 0


def test_of_many_that_keep_what_is_there_one_is_scheduled_and_the_others_are_given_it(
    app, add, delayq
):
    signature = add.s(1)
    results = at_once(
        [lambda: delayq.schedule(signature, at=FAR, key="k", conflict="keep")] * CALLERS
    )

    [holder] = waiting(delayq)
    assert Counter((result.id, result.existed) for result in results) == {
        (holder, False): 1,
        (holder, True): CALLERS - 1,
    }


PROCESS = f"""
import os, signal, sys
from celery import Celery
from celery_delayq import DelayQ

app = Celery(broker=sys.argv[1], backend=sys.argv[2])
delayq = DelayQ(app)
app.conf.delayq_shards = {SHARDS}
options = dict(delayq_key="k", delayq_at={FAR})
"""
KILLED = """
app.backend.mark_as_revoked = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
app.send_task("add", (2,), task_id="new", delayq_conflict=sys.argv[3], **options)
"""


KILLED_WHILE = {
    "keep": ("old", "new", "kept old"),
    "replace": ("new", "old", "replaced by new"),
}


@pytest.mark.parametrize("conflict", KILLED_WHILE)
def test_a_scanner_stores_what_a_caller_could_not_who_was_killed(
    add, delayq, redis, drain, conflict
):
    stays, goes, why = KILLED_WHILE[conflict]
    app = add.app
    add.s(1).set(task_id="old", delayq_key="k").delay_until(FAR)

    command = ("-c", PROCESS + KILLED, app.conf.broker_url, app.conf.result_backend, conflict)
    assert run_forked(*command, cwd=ROOT).returncode == -9

    assert list(waiting(delayq)) == [stays]
    assert told(goes, app)[0] == states.PENDING
    assert owed(redis) == 1
    assert drain()
    assert told(goes, app) == (states.REVOKED, why)
    assert owed(redis) == 0
    assert total(redis.hlen, "outbox_messages") == 0
