"""The old master comes back with its old data: it is a replica, and clients treat it as one."""

from celery_delayq.errors import StoreUnavailable
from tests.sentinel.faults import demote, kill, silence
from tests.sentinel.work import FAR, TIMEOUT
from tests.support.waiting import PATIENCE, eventually


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


def test_and_then_it_takes_over_again(start_group, make_delayq):
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


def test_a_silent_master_that_goes_on_refuses_the_earlier_request(start_group, make_delayq):
    """The earlier request waits in its socket, and is refused because its deadline has passed."""
    group = start_group()
    delayq = make_delayq(group)
    delayq.note.apply_async(task_id="before", delayq_at=FAR)
    delayq.app.conf.delayq_timeout = TIMEOUT
    course = silence(group)
    eventually(lambda: _scheduled(delayq, "after"))

    group.restore(course.old)
    group.heal()

    assert group.master is course.new
    delayq.app.conf.delayq_timeout = PATIENCE
    assert {task.id for task in delayq.tasks()} == {"before", "after"}


def _scheduled(delayq, task_id: str) -> bool:
    try:
        delayq.note.apply_async(task_id=task_id, delayq_at=FAR)
    except StoreUnavailable:
        return False
    return True
