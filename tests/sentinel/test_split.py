"""An old master: it comes back with its old data, or goes on for clients in a split network."""

from collections import Counter

from tests.sentinel.faults import demote, hide, kept, kill
from tests.sentinel.work import FAR, Caller, all_due_has_left, arrived, schedule_row
from tests.support.waiting import PATIENCE, eventually

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


def test_an_old_master_that_is_a_replica_takes_over_again(start_group, make_delayq):
    group = start_group()
    delayq = make_delayq(group)
    delayq.note.apply_async(task_id="1", delayq_at=FAR)
    first = kill(group)
    delayq.note.apply_async(task_id="2", delayq_at=FAR)
    group.heal()

    second = demote(group)

    delayq.note.apply_async(task_id="3", delayq_at=FAR)
    assert second.new is first.old
    assert {task.id for task in delayq.tasks()} == {"1", "2", "3"}


# A split network: the old master continues for its clients, and another one is elected.


MORE = 50
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


def test_a_process_linked_to_the_lost_side_moves_on_when_that_becomes_a_replica(
    start_group, make_delayq
):
    group = start_group(password="secret")
    delayq = make_delayq(group)
    delayq.note.apply_async(task_id="before", delayq_at=FAR)
    course = hide(group)
    group.show(course.old)
    course.await_demotion()

    delayq.note.apply_async(task_id="after", delayq_at=FAR)

    assert {task.id for task in make_delayq(group).tasks()} == {"before", "after"}
