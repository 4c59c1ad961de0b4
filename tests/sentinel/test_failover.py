"""A master fails while a caller schedules and cancels, and a scanner delivers or sleeps."""

import pytest

from tests.sentinel.faults import demote, failover, kill, silence
from tests.sentinel.trial import tried
from tests.sentinel.work import FAR, arrived
from tests.support.waiting import eventually

pytestmark = pytest.mark.libraries

SLEEPS = 60.0  # seconds: a scanner's safety interval, longer than these tests


@pytest.mark.parametrize("fault", [kill, silence, failover, demote])
def test_all_are_at_work_again_soon_and_each_task_is_in_one_place(
    start_group, make_delayq, start_scanner, fault
):
    group = start_group()

    trial = tried(group, lambda: make_delayq(group), start_scanner, fault)

    assert trial.problems == []


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
    eventually(lambda: arrived(course.new))
