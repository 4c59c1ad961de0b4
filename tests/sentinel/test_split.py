"""A group on one side only, an old master that comes back, and a split network."""

import time
from collections import Counter

import pytest

from tests.sentinel.faults import hide, kept, kill, silence
from tests.sentinel.work import (
    FAR,
    Arrivals,
    Caller,
    all_due_has_left,
    arrived,
    marks,
    schedule_row,
)
from tests.support.waiting import PATIENCE, eventually

# A group on one side only: as the store with a RabbitMQ, or as the broker with a plain Redis.


MORE = 50
EVERY = 0.02  # seconds between two due times
LEASE = 5.0
LONG_AGO = 1_000_000_000
A_LITTLE = 1.0  # seconds that a delivery may take


@pytest.mark.parametrize("fault", [kill, silence])
def test_a_store_beside_rabbitmq_loses_nothing_and_repeats_only_what_had_just_gone(
    start_group, make_delayq, start_scanner, rabbitmq_server, fault
):
    group = start_group()
    queue = f"sentinel-{fault.__name__}-{time.time_ns()}"
    conf = {
        "broker_url": rabbitmq_server.url,
        "task_default_queue": queue,
        "delayq_url": group.url(),
        "delayq_transport_options": group.options,
        "delayq_lease": LEASE,
    }
    row = schedule_row(make_delayq(**conf), 150, first=0.0, every=EVERY)
    start_scanner(make_delayq(**conf))
    with Arrivals(rabbitmq_server.url, queue) as arrivals:
        with Caller(make_delayq(**conf)) as caller:
            eventually(lambda: len(caller.calls) > MORE)

            course = fault(group)

            # On a slow machine, these tasks may already have been delivered.
            make_delayq(**conf).note.apply_async(task_id="one more", delayq_at=LONG_AGO)
            eventually(lambda: arrivals.first({*row, "one more"}, course.elected), 30)
            calls = len(caller.calls)
            eventually(lambda: len(caller.calls) > calls + MORE, 30)
        delayq = make_delayq(**conf)
        eventually(lambda: all_due_has_left(delayq), 40)
        waiting = {task.id for task in delayq.tasks()}
        wanted, cancelled = kept(caller, course)
        wanted = {*row, *wanted} - waiting
        eventually(lambda: wanted <= arrivals.ids())
    assert not cancelled & (waiting | arrivals.ids())
    unmarked = Counter(one.task_id for one in arrivals.copies if not one.is_marked)
    twice = {task_id for task_id, count in unmarked.items() if count > 1}
    # Its claim, or its acknowledgement, had not reached the replica. Before the election, only the
    # old master delivers.
    until = max(course.gone + A_LITTLE, course.elected)
    assert twice <= arrivals.ids(since=course.caught_up - A_LITTLE, until=until)
    assert list(delayq.check()) == []


@pytest.mark.parametrize("fault", [kill, silence])
def test_a_broker_with_a_new_master_gets_all_that_the_old_one_did_not_take(
    start_group, make_delayq, start_scanner, redis_url, fault
):
    group = start_group()
    delayq = make_delayq(group, delayq_url=redis_url, delayq_lease=LEASE)
    first_due = time.monotonic()
    row = schedule_row(delayq, 150, first=0.0, every=EVERY)
    start_scanner(delayq)
    eventually(lambda: len(marks(group.master)) > 10)
    replicated = {task_id for task_id, _ in marks(group.master)}

    course = fault(group)
    before = {task_id for task_id, _ in marks(course.new)}
    delayq.note.apply_async(task_id="one more", delayq_at=LONG_AGO)
    eventually(lambda: {task_id for task_id, _ in marks(course.new)} - before, 30)
    eventually(lambda: all_due_has_left(delayq), 40)

    unmarked = Counter(task_id for task_id, is_marked in marks(course.new) if not is_marked)
    missing = set(row) - {task_id for task_id, _ in marks(course.new)}
    dues = [first_due + EVERY * row.index(task_id) for task_id in missing]
    # The old master had it, but its replica did not: the broker itself lost it.
    assert all(due < course.gone for due in dues), missing
    assert not missing & replicated
    assert max(unmarked.values()) == 1
    counts = delayq.counts()
    assert (counts.dead, counts.refused) == (0, 0)


# The old master comes back with its old data: it is a replica, and clients treat it as one.


def test_an_old_master_that_is_started_again_is_no_master_to_anybody(start_group, make_delayq):
    group = start_group("--appendonly", "yes")
    delayq = make_delayq(group)
    delayq.note.apply_async(task_id="before", delayq_at=FAR)
    course = kill(group)
    delayq.note.apply_async(task_id="after", delayq_at=FAR)

    # By its configuration it is a master, until sentinels have checked it. If a sentinel that does
    # not know the new master named it, no client could tell the difference.
    group.agree()
    course.old.start()
    found = [make_delayq(group) for _ in range(3)]
    seen = [{task.id for task in each.tasks()} for each in (delayq, *found)]
    group.heal()

    assert seen == [{"before", "after"}] * 4
    assert group.master is course.new
    assert course.old.info()["role"] == "slave"
    assert {task.id for task in delayq.tasks()} == {"before", "after"}


SAFE = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", str(PATIENCE))


def test_a_task_that_the_lost_side_delivered_is_delivered_once_more_by_the_new_master(
    start_group, make_delayq, start_scanner
):
    group = start_group(password="secret")
    delayq = make_delayq(group)
    row = schedule_row(delayq, 100, first=0.0, every=0.0)

    course = hide(group, delayq.hand_over)
    assert (arrived(course.old), arrived(course.new)) == (row, [])
    group.show(course.old)
    course.await_demotion()

    delayq = make_delayq(group)
    start_scanner(delayq)
    eventually(lambda: all_due_has_left(delayq), 30)
    assert Counter(arrived(course.new)) == Counter(row)
    assert list(delayq.check()) == []


def test_a_master_that_its_replicas_left_sends_callers_to_the_new_one_and_loses_nothing(
    start_group, make_delayq, start_scanner
):
    group = start_group(*SAFE, replicas=2, password="secret")
    row = schedule_row(make_delayq(group), 100, first=0.0, every=0.02)
    start_scanner(make_delayq(group))
    with Caller(make_delayq(group)) as caller:
        eventually(lambda: len(caller.calls) > MORE)

        course = hide(group)

        # It also takes no writes before it has a replica.
        eventually(lambda: course.new.info()["min_slaves_good_slaves"], 30)
        calls = len(caller.calls)
        eventually(lambda: len(caller.done("schedule")) and len(caller.calls) > calls + MORE, 30)
    assert any(one.began > course.gone for one in caller.done("schedule"))
    assert caller.odd == []

    delayq = make_delayq(group)
    eventually(lambda: all_due_has_left(delayq), 30)
    at_queue, waiting = Counter(arrived(course.new)), {task.id for task in delayq.tasks()}
    wanted, cancelled = kept(caller, course)
    assert max(at_queue.values()) == 1
    assert {*row, *wanted} <= waiting | set(at_queue), "lost"
    assert not cancelled & (waiting | set(at_queue))
