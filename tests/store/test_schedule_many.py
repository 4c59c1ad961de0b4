"""Scheduling many in one step: each entry is independent, and has its own answer."""

import pytest

from celery_delayq.core.clock import MAX_DUE_MS, When
from celery_delayq.core.store import NewEntry, Receipt
from celery_delayq.core.store.record import header_for
from celery_delayq.core.store.schedule import Addition
from celery_delayq.errors import AlreadyScheduled, InvalidDueTime
from tests.store import support
from tests.store.support import FAR_MS, NOW_MS, ROUTE, new_record

pytestmark = pytest.mark.core

LIST, RELAY = header_for("L", "celery"), header_for("R", ROUTE)


def new(task_id, due_ms=FAR_MS, *, to=LIST, share=True, when=None, payload=""):
    record = new_record(task_id, to, payload, share=share)
    return NewEntry(task_id, when or When("at", due_ms), record)


def schedule(store, *many, **options):
    """Each entry's due time in ms, or the reason of its refusal."""
    answers = store.entries.schedule(many, Addition(**options))
    for new_entry, answer in zip(many, answers, strict=True):
        assert not isinstance(answer, Receipt) or answer.task_id == new_entry.task_id
    return [answer.due_ms if isinstance(answer, Receipt) else answer for answer in answers]


def another_template(monkeypatch, number):
    """Let records share another template from here on."""
    lines = [*support.LINES]
    lines[3] = f', "headers": {{"n": {number}, "id": "'
    monkeypatch.setattr(support, "LINES", lines)


def kinds(answers):
    return [answer if isinstance(answer, int) else type(answer) for answer in answers]


def test_each_entry_is_scheduled_with_a_time_a_place_and_a_form_of_its_own(store):
    answers = schedule(
        store,
        new("a", FAR_MS),
        new("b", when=When("after", 5)),
        new("c", 0, to=RELAY),
        new("d", MAX_DUE_MS, to=RELAY, share=False),
        new("e", NOW_MS - 1, to=header_for("L", "mail"), share=False),
    )

    assert answers == [FAR_MS, NOW_MS + 5, 0, MAX_DUE_MS, NOW_MS - 1]
    assert [store.places(one) for one in "abcde"] == [["due"]] * 2 + [["relay"]] * 2 + [["due"]]
    store.check()


def test_equal_due_times_keep_their_order_whatever_their_form(store):
    ids = [f"a{number}" for number in range(300)]
    schedule(store, *(new(one, NOW_MS, share=place % 3 > 0) for place, one in enumerate(ids)))

    store.steps(batch_size=300).hand_over()

    assert store.arrived() == ids


@pytest.mark.parametrize("first", ["held", "late"])
def test_order_is_kept_where_a_template_was_forgotten_and_its_first_entry_is_refused(store, first):
    schedule(store, new("x", NOW_MS))
    store.steps().hand_over()
    store.schedule("held")

    schedule(
        store,
        new(first, 2**53),
        new("a", NOW_MS, share=False),
        new("b", NOW_MS),
        new("c", NOW_MS, share=False),
        new("d", NOW_MS),
    )

    store.steps().hand_over()
    assert [one for one in store.arrived() if one not in ("x", "held")] == ["a", "b", "c", "d"]
    store.check()


def test_a_refused_entry_spoils_none_of_the_others(store):
    store.schedule("held", FAR_MS, payload="first", share=True)
    store.at("leased", "in flight")
    before = store.record("held"), store.record("in flight")

    answers = schedule(
        store,
        new("held"),
        new("a"),
        new("late", when=When("after", MAX_DUE_MS)),
        new("in flight", to=RELAY),
        new("b"),
    )

    assert kinds(answers) == [AlreadyScheduled, FAR_MS, InvalidDueTime, AlreadyScheduled, FAR_MS]
    assert (answers[0].task_id, answers[2].value) == ("held", None)
    assert (store.record("held"), store.record("in flight")) == before
    assert store.places("late") == []
    store.check()


def test_where_all_are_refused_nothing_is_written(store):
    store.schedule("held", FAR_MS, share=True)
    before = store.snapshot()

    answers = schedule(store, new("held"), new("held", share=False), new("late", 2**53))

    assert kinds(answers) == [AlreadyScheduled, AlreadyScheduled, InvalidDueTime]
    assert store.snapshot() == before


@pytest.mark.parametrize("share", [True, False])
def test_an_id_that_comes_twice_is_scheduled_once_and_the_second_refused(store, share):
    answers = schedule(store, new("a", FAR_MS, payload="first"), new("a", 0, share=share))

    assert kinds(answers) == [FAR_MS, AlreadyScheduled]
    assert b'"first"' in store.entries.find("a").message
    store.check()


def test_an_id_whose_first_entry_is_too_late_is_scheduled_by_its_second(store):
    assert kinds(schedule(store, new("a", 2**53), new("a"))) == [InvalidDueTime, FAR_MS]
    store.check()


def test_superseding_replaces_each_entry_that_is_scheduled(store):
    schedule(store, new("a", NOW_MS, to=RELAY), new("b", NOW_MS, to=RELAY, share=False), new("c"))
    store.take("leased", "a", "b")

    answers = schedule(
        store,
        *(new(one, FAR_MS + 1, payload="new") for one in "abd"),
        supersede=True,
    )

    assert answers == [FAR_MS + 1] * 3
    assert [b'"new"' in store.entries.find(one).message for one in "abcd"] == [1, 1, 0, 1]
    store.check()


# Waking a scanner.


@pytest.mark.parametrize("to", [LIST, RELAY])
def test_scanners_are_told_once_of_the_earliest_wherever_it_stands(store, to):
    store.steps().hand_over(asleep=60)
    store.raw.config_resetstat()

    schedule(store, new("a"), new("b", NOW_MS + 9, to=to), new("c", NOW_MS + 5, to=to), new("d"))

    # First for the scanner that was up, which does not listen here; therefore then for all.
    assert store.raw.info("commandstats")["cmdstat_publish"]["calls"] == 2
    assert store.raw.hget(store.keys["meta"], "timer") == b"%d:" % (NOW_MS + 5)


# Templates.


def test_templates_are_counted_each_by_its_own_entries_and_gone_with_them(store, monkeypatch):
    many = []
    for number in range(3):
        another_template(monkeypatch, number)
        many += [new(f"{number}{step}", NOW_MS) for step in range(number + 1)]

    schedule(store, *many, new("whole", NOW_MS, share=False))

    uses = store.raw.hgetall(store.keys["template_uses"])
    assert sorted(map(int, uses.values())) == [1, 2, 3]
    store.check()
    assert store.steps().hand_over().handed_over == 7
    assert not store.raw.exists(store.keys["templates"], store.keys["template_uses"])


@pytest.mark.parametrize("count", [1, 5])
def test_templates_that_this_process_sent_and_redis_forgot_are_sent_again(
    store, monkeypatch, count
):
    store.schedule("x", NOW_MS, share=True)
    store.steps().hand_over()
    store.check()

    schedule(store, *(new(f"a{step}") for step in range(count)))

    assert store.entries.find("a0").message.count(b"tests.remind") == 1
    assert int(store.raw.hvals(store.keys["template_uses"])[0]) == count
    store.check()


def test_a_process_that_remembers_as_many_templates_as_it_may_still_sends_all(
    store, monkeypatch, limits
):
    limits(schedule_sent=2)
    for number in range(5):
        another_template(monkeypatch, number)
        schedule(store, new(f"{number}a"), new(f"{number}b"))
        store.schedule(f"{number}c", share=True)

    assert len(store.shard.templates) <= 2
    assert sorted(map(int, store.raw.hvals(store.keys["template_uses"]))) == [3] * 5
    store.check()


def test_a_template_is_sent_once_for_many(real_store):
    store = real_store

    def received(count):
        before = store.raw.info("stats")["total_net_input_bytes"]
        many = [new(f"{count}.{step:03}") for step in range(count)]
        schedule(store, *many)
        return store.raw.info("stats")["total_net_input_bytes"] - before

    received(1)

    assert received(200) - received(100) < 100 * len(new("a").record.template)
