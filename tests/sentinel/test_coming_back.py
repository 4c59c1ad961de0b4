"""The old master comes back with its old data: it is a replica, and clients treat it as one."""

from tests.sentinel.faults import demote, kill
from tests.sentinel.work import FAR


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
