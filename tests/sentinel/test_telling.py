"""How a process learns of the new master: from a sentinel, or from silence."""

import contextlib
import time

from celery_delayq.core.handover import backoff
from celery_delayq.errors import StoreUnavailable
from tests.sentinel.faults import kill, silence
from tests.sentinel.work import FAR, SILENT, arrived
from tests.support.waiting import eventually

SLEEPS = 60.0  # seconds: a scanner's safety interval, longer than these tests


def look(node):
    return lambda: arrived(node)


def test_a_sleeping_scanner_hears_of_it_although_its_link_is_silent(
    start_group, make_delayq, start_scanner
):
    """Its next PING would come half a minute later, and its next scan a minute later."""
    group = start_group()
    delayq = make_delayq(group, delayq_safety_interval=SLEEPS)
    start_scanner(delayq)
    delayq.note.apply_async(task_id="far", delayq_at=FAR)
    eventually(lambda: group.master.client().pubsub_channels("*wake*"))
    group.catch_up()

    course = silence(group)
    # The new master knows it as a subscriber.
    eventually(lambda: course.new.client().pubsub_channels("*wake*"))
    make_delayq(group).run_now("far")
    eventually(look(course.new))


def test_a_sleeping_scanner_goes_on_at_the_new_master_while_a_sentinel_is_silent(
    start_group, make_delayq, start_scanner
):
    group = start_group()
    options = group.asking_for(SILENT)
    delayq = make_delayq(group, broker_transport_options=options, delayq_safety_interval=1.0)
    start_scanner(delayq)
    group.silence(group.sentinels[0])
    delayq.note.apply_async(task_id="soon", delayq_at=time.time() + 2)
    group.catch_up()

    course = kill(group)

    eventually(look(course.new))


def test_a_scanner_that_has_failed_for_long_is_told_before_its_next_try(
    start_group, make_delayq, start_scanner, monkeypatch
):
    """Its pauses double, so an election of half a minute would be followed by a long pause."""
    monkeypatch.setattr(backoff.Backoff, "next", lambda _self: SLEEPS)
    group = start_group()
    delayq = make_delayq(group, delayq_safety_interval=0.5)
    start_scanner(delayq)
    delayq.note.apply_async(task_id="soon", delayq_at=time.time() + 1)
    group.catch_up()

    course = kill(group)

    eventually(look(course.new))


def test_a_silent_link_costs_one_call_its_time_and_no_more(start_group, make_delayq):
    group = start_group()
    delayq = make_delayq(group)
    delayq.note.apply_async(task_id="before", delayq_at=FAR)
    group.catch_up()
    silence(group)

    with contextlib.suppress(StoreUnavailable):
        delayq.note.apply_async(task_id="first", delayq_at=FAR)
    delayq.note.apply_async(task_id="second", delayq_at=FAR)

    assert {"before", "second"} <= {task.id for task in make_delayq(group).tasks()}
