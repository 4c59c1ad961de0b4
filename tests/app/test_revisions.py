"""`if_revision`: a task that was changed since it was read stays as it is."""

from functools import partial
from types import SimpleNamespace

import pytest

from celery_delayq import Outcome, State
from celery_delayq.errors import InvalidOption, UnreadableRecord
from tests.app.support import FAR
from tests.support.places import at

CHANGES = {
    "cancel": lambda named, **more: named.cancel(**more),
    "reschedule": lambda named, **more: named.reschedule(after=60, **more),
    "run_now": lambda named, **more: named.run_now(**more),
    "edit": lambda named, **more: named.edit(priority=3, **more),
}
ON_THE_DEAD = {
    "retry": lambda named, **more: named.retry(**more),
    "remove": lambda named, **more: named.remove(**more),
}


def by(delayq, *who, **named):
    """Changes of one task by its id or key."""
    return SimpleNamespace(
        **{name: partial(getattr(delayq, name), *who, **named) for name in CHANGES}
    )


@pytest.fixture(params=["id", "key", "result"])
def named(request, add, delayq):
    """A scheduled task, as its caller names it."""
    result = add.s(1).set(task_id="a", delayq_key="k").delay_until(FAR)
    ways = {"id": by(delayq, "a"), "key": by(delayq, key="k"), "result": result}
    return ways[request.param]


@pytest.fixture
def dead(app, delayq):
    """A task that a broker refused."""
    at(delayq, "dead")


@pytest.mark.parametrize("change", CHANGES)
def test_a_task_changed_since_stays_as_it_is_until_it_is_read_again(delayq, named, change):
    revision = delayq.get("a").revision
    delayq.reschedule("a", by=1)
    before = delayq.get("a")

    assert CHANGES[change](named, if_revision=revision) is Outcome.UNCHANGED
    assert delayq.get("a") == before

    assert CHANGES[change](named, if_revision=before.revision) is Outcome.DONE
    assert delayq.get("a") is None or delayq.get("a").revision > before.revision


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("revision", ["1", 1.5, True, -1, 2**56])
def test_a_value_that_is_no_revision_is_refused(delayq, named, change, revision):
    before = delayq.get("a")

    with pytest.raises(InvalidOption, match="the revision of a task that you read") as caught:
        CHANGES[change](named, if_revision=revision)

    assert caught.value.name == "if_revision"
    assert delayq.get("a") == before


@pytest.mark.parametrize("change", ON_THE_DEAD)
def test_a_dead_task_is_changed_as_it_was_read(dead, delayq, change):
    revision = delayq.get("a").revision
    assert delayq.edit("a", add_tags=["t"])

    assert getattr(delayq, change)("a", if_revision=revision) is Outcome.UNCHANGED
    assert delayq.get("a").state is State.DEAD

    assert getattr(delayq, change)("a", if_revision=delayq.get("a").revision) is Outcome.DONE
    assert delayq.state("a") is (None if change == "remove" else State.SCHEDULED)


def test_an_unreadable_task_is_not_removed_on_condition(dead, redis, delayq):
    records = delayq.services.scripts[0].keys["records"]
    redis.hset(records, "a", b"0" + redis.hget(records, "a")[1:])

    with pytest.raises(UnreadableRecord):
        delayq.remove("a", if_revision=0)

    assert delayq.counts().dead == 1
    assert delayq.remove("a")


def test_a_dead_task_without_a_record_is_not_removed_on_condition(app, redis, delayq):
    app.send_task("t", task_id="a", delayq_after=0)
    redis.hdel(delayq.services.scripts[0].keys["records"], "a")
    delayq.hand_over()
    assert delayq.counts().dead == 1

    assert delayq.remove("a", if_revision=0) is not Outcome.DONE

    assert delayq.counts().dead == 1
    assert delayq.remove("a")


@pytest.mark.parametrize("change", [*CHANGES, *ON_THE_DEAD])
def test_a_selection_takes_no_revision(add, delayq, change):
    add.s(1).set(task_id="a").delay_until(FAR)
    before = delayq.get("a")

    with pytest.raises(InvalidOption, match="none for a selection") as caught:
        {**CHANGES, **ON_THE_DEAD}[change](delayq.select(all=True), if_revision=before.revision)

    assert caught.value.name == "if_revision"
    assert delayq.get("a") == before
