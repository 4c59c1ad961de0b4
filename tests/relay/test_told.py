"""What a relay tells of: a batch that the broker has, what is dead, what was too late."""

import pytest

from celery_delayq import signals
from celery_delayq.handover.publishers import Verdict

NAMES = ("task_handed_over", "task_dead", "task_skipped")


@pytest.fixture
def house(make_house):
    return make_house("memory://")


@pytest.fixture
def heard(house):
    told = []

    def receiver(signal, sender, **facts):
        assert sender is house.app
        told.append((signal.name.removeprefix("delayq_"), facts))

    for name in NAMES:
        getattr(signals, name).connect(receiver, sender=house.app, dispatch_uid=name)
    yield told
    for name in NAMES:
        getattr(signals, name).disconnect(sender=house.app, dispatch_uid=name)


def test_a_batch_is_told_when_the_broker_has_it(house, heard):
    sent = [house.due_now().id for _ in range(3)]

    house.relay_once()

    assert heard == [("task_handed_over", {"task_ids": sent})]
    assert house.ids() == sent


def test_what_the_broker_refused_is_not_told_and_what_is_given_up_is_dead(
    house, heard, monkeypatch
):
    sent = [house.due_now().id for _ in range(3)]
    relay = house.relay()
    words = {sent[0]: "refused", sent[1]: "dead", sent[2]: "unknown"}
    monkeypatch.setattr(
        relay._link,
        "publish",
        lambda entries, _: [(one, Verdict(words[one.task_id], "no")) for one in entries],
    )

    relay.batch(lambda: False)

    assert heard == [("task_dead", {"task_id": sent[1], "reason": "no"})]


def test_what_is_too_late_is_told_as_skipped(house, heard):
    late = house.due_now(delayq_late="skip", delayq_grace=5).id

    house.relay_once()

    [(name, facts)] = heard
    assert (name, facts["task_id"]) == ("task_skipped", late)


def test_a_scanner_in_a_thread_tells_too(house, heard):
    sent = house.due_now().id

    house.start()
    house.take()
    house.close()

    assert heard == [("task_handed_over", {"task_ids": [sent]})]


def test_what_one_call_hands_over_is_told(house, heard):
    sent = house.due_now().id

    assert house.delayq.hand_over() == 1

    assert heard == [("task_handed_over", {"task_ids": [sent]})]
