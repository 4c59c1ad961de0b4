"""A thread is ended while it publishes: each claimed entry is given back before it ends."""

import pytest

pytestmark = pytest.mark.libraries


def test_tasks_being_published_may_have_been_sent_and_the_rest_goes_again(make_house, monkeypatch):
    house = make_house("memory://")
    ids = [house.due_now().id for _ in range(3)]
    relay = house.relay()
    monkeypatch.setattr(relay._link, "_size", 2)
    publish, ended = relay._link._publish, []

    def end(window, out_of_time):
        publish(window, out_of_time)
        ended.append([entry.task_id for entry in window])
        raise SystemExit(3)

    monkeypatch.setattr(relay._link, "_publish", end)

    with pytest.raises(SystemExit):
        relay.batch(lambda: False)

    assert ended == [ids[:2]]
    assert house.counts() == (3, 0, 0)
    again = relay.steps.claim(10).entries
    assert {one.task_id: one.uncertain for one in again} == dict(zip(ids, [1, 1, 0], strict=True))
