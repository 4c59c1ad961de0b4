"""What waits in a group's lists with a far eta goes into the store, also at a new master."""

from celery_delayq.integration.adopting.lists import adopt_lists


def test_what_waits_in_a_groups_lists_is_adopted(group, make_delayq):
    delayq = make_delayq(group)
    delayq.note.apply_async(task_id="far", countdown=3600)
    delayq.note.apply_async(task_id="near")

    assert adopt_lists(delayq.services) == 1

    assert delayq.get("far").id == "far"
    assert group.master.client().llen("celery") == 1


def test_it_is_adopted_at_the_new_master(start_group, make_delayq):
    group = start_group()
    delayq = make_delayq(group)
    delayq.note.apply_async(task_id="far", countdown=3600)
    assert adopt_lists(delayq.services, dry_run=True) == 1
    group.catch_up()

    new, _ = group.elected(group.kill_master())

    assert adopt_lists(make_delayq(group).services) == 1
    assert new.client().llen("celery") == 0
