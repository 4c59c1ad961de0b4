"""Changes of one task by id or key, and of dead letters; the filters of a selection."""

import pytest

from celery_delayq import Outcome, State
from celery_delayq.errors import InvalidOption, UnreadableRecord
from tests.app.support import FAR, LONG_AGO
from tests.support.places import at
from tests.support.shards import each, keys_of, with_one_shard

DONE, UNCHANGED, GONE = Outcome.DONE, Outcome.UNCHANGED, Outcome.NOT_FOUND


@pytest.fixture
def add(app):
    @app.task(name="add")
    def add(x=0):
        return x

    return add


def spoil(redis, task_id):
    """Make a record that this version cannot read."""
    records = keys_of(task_id)["records"]
    redis.hset(records, task_id, b"0" + redis.hget(records, task_id)[1:])


def lose(redis, task_id):
    redis.hdel(keys_of(task_id)["records"], task_id)


@pytest.fixture
def dead(delayq, add, redis):
    """The broker refused the message of "dead"; "unread" and "lost" cannot be read."""
    add.apply_async(task_id="waits", delayq_at=FAR, delayq_tags=["all"])
    at(delayq, "dead", "dead", name="add", delayq_tags=["all"])
    for task_id, spoilt in (("unread", spoil), ("lost", lose)):
        add.apply_async(task_id=task_id, delayq_at=LONG_AGO, delayq_tags=["all"])
        spoilt(redis, task_id)
    delayq.hand_over()
    assert delayq.counts().dead == 3


def test_dead_letters_are_met_also_those_that_cannot_be_read(dead, delayq):
    met = {task.id: task.reason for task in delayq.select(state="dead")}
    assert sorted(met) == ["dead", "lost", "unread"]
    assert met["dead"] == "NO_ROUTE"
    assert met["lost"].startswith("no record")
    assert "format" in met["unread"]
    assert [task.id for task in delayq.select(tag="all", state=State.DEAD)] == ["dead"]


def test_dead_letters_are_retried_if_they_can_be_read_and_all_can_be_removed(dead, delayq, redis):
    selection = delayq.select(state="dead")
    assert selection.retry(dry_run=True) == selection.retry() == 1
    assert delayq.state("dead") is State.SCHEDULED
    assert selection.remove(dry_run=True) == selection.remove() == 2
    assert delayq.counts().dead == 0
    assert {task.id for task in delayq.select(all=True)} == {"waits", "dead"}
    assert not any(redis.exists(key) for key in each("errors"))


def test_a_dead_letter_is_removed_by_its_id(dead, delayq, redis):
    assert delayq.remove("waits") is UNCHANGED
    spoil(redis, "waits")
    with pytest.raises(UnreadableRecord):  # it is not dead yet
        delayq.remove("waits")
    assert [delayq.remove(one) for one in ("dead", "unread", "lost", "dead")] == [DONE] * 3 + [GONE]
    assert delayq.counts().dead == 0
    assert redis.hexists(keys_of("waits")["records"], "waits")


def test_a_cursor_goes_on_among_those_that_lost_their_numbers(delayq, add, redis):
    for task_id in "abc":
        add.apply_async(task_id=task_id, delayq_at=LONG_AGO)
        lose(redis, task_id)
    delayq.hand_over()
    selection = delayq.select(state="dead")
    walk = iter(selection)
    first = [next(walk).id for _ in range(2)]
    rest = [task.id for task in delayq.select(state="dead", cursor=selection.cursor)]
    assert (len(rest), {*first, *rest}) == (1, {"a", "b", "c"})


def test_a_task_whose_scanner_died_while_publishing_counts_as_uncertain(delayq, add):
    at(delayq, "lapsed", name="add")
    for dry_run in (True, False):
        count = delayq.select(task="add").cancel(dry_run=dry_run)
        assert (count, count.uncertain, count.in_flight) == (1, 1, 0)


def test_workers_are_told_to_revoke_an_id_only(delayq):
    says = "revoke is True; expected a task's id, as workers know no keys"
    with pytest.raises(InvalidOption, match=says):
        delayq.cancel(key="k", revoke=True)


def test_run_now_of_a_result_moves_its_due_time(delayq, add):
    result = add.delay_until(FAR, 1)
    assert result.run_now() is DONE
    assert result.due.timestamp() < FAR
    assert delayq.hand_over() == 1
    assert result.run_now() is Outcome.HANDED_OVER


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "all"),
        *(({"all": wrong}, "all") for wrong in (False, 1)),
        *(({"tag": wrong}, "tag") for wrong in ("", "a\0b", 5)),
        *(({"task": wrong}, "task") for wrong in ("", 5)),
        ({"queue": 5}, "queue"),
        *(({"state": wrong}, "state") for wrong in ("gone", 5)),
    ],
    ids=repr,
)
def test_a_wrong_selection_is_refused_at_the_call(delayq, given, name):
    with pytest.raises(InvalidOption, match=f"^{name} is "):
        delayq.select(**given)


@with_one_shard
def test_all_that_is_given_has_to_be_so(delayq, app, add):
    add.apply_async(task_id="a", delayq_at=FAR, delayq_tags=["x", "xy"])
    add.apply_async(task_id="b", delayq_at=FAR, queue="mail", delayq_tags=["x"])
    app.send_task("other", task_id="c", delayq_at=FAR, queue="mail")
    app.send_task("other", task_id="d", delayq_at=FAR)

    def met(**given):
        assert delayq.select(**given).count() == len(list(delayq.select(**given)))
        return "".join(task.id for task in delayq.select(**given))

    assert met(all=True) == "abcd"
    assert met(task=add) == met(task="add") == "ab"
    assert met(queue="mail") == "bc"
    assert met(task=add, queue="mail") == "b"
    assert (met(tag="x"), met(tag="xy"), met(tag="y")) == ("ab", "a", "")
    assert met(tag="x", queue="celery", state="SCHEDULED", task=add, before_due=FAR + 1) == "a"
    assert met(tag="x", state="DEAD") == met(task="others") == ""
