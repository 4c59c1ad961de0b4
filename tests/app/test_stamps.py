"""`revoke_by_stamped_headers` reaches what waits, and means what a worker would mean."""

import threading
from types import SimpleNamespace

import pytest
from celery import chain, chord, group
from celery.worker import state as worker_state
from celery.worker.control import Panel
from celery.worker.request import Request

from celery_delayq import signals
from celery_delayq.errors import InvalidOption, StoreUnavailable
from celery_delayq.integration import control, stamped
from celery_delayq.operations import stamps
from celery_delayq.operations.changing import TOLD
from tests.app.support import FAR, envelope

pytestmark = pytest.mark.libraries

STAMPED = [
    ({"mark": "a"}, {"mark": "a"}),
    ({"mark": "a"}, {"mark": ["b", "a"]}),
    ({"mark": "a"}, {"mark": "b"}),
    ({"mark": "a"}, {"other": "a"}),
    ({"mark": ["a", "b"]}, {"mark": "b"}),
    ({"mark": ["a", "b"]}, {"mark": ["c", "b"]}),
    ({"mark": ["a", "b"]}, {"mark": ["c"]}),
    ({"mark": "abc"}, {"mark": "a"}),
    ({"mark": 7}, {"mark": 7}),
    ({"mark": 7}, {"mark": "7"}),
    ({"mark": "a", "more": "x"}, {"more": "x"}),
    ({}, {"mark": "a"}),
]


def options(given):
    return {"stamped_headers": list(given), **given}


def waiting(app):
    return sorted(task.id for task in app.delayq.tasks())


@pytest.fixture
def broadcast(app, monkeypatch):
    """What workers would be told."""
    told = []
    monkeypatch.setattr(
        app.control, "broadcast", lambda command, **facts: told.append((command, facts))
    )
    return told


@pytest.mark.parametrize(("given", "revoked"), STAMPED)
def test_a_task_is_meant_where_a_worker_would_mean_it(app, add, given, revoked):
    add.s(1).set(task_id="a", **options(given)).delay_until(FAR)
    request = worker_request(app, add, envelope(app.delayq, "a").headers)
    try:
        Panel.data["revoke_by_stamped_headers"](worker(app), dict(revoked), **{TOLD: 0})
        celerys = request.revoked()
    finally:
        worker_state.revoked_stamps.clear()

    assert stamps.cancel_stamped(app.delayq.services, revoked) == celerys
    assert waiting(app) == ([] if celerys else ["a"])


def worker(app):
    """What a worker's commands are given."""
    return SimpleNamespace(app=app)


def worker_request(app, task, headers):
    message = SimpleNamespace(
        headers=headers, properties={}, delivery_info={}, payload=None, delivery_tag="1"
    )
    message.content_type = message.content_encoding = None
    body = ((), {}, {})
    return Request(
        message,
        app=app,
        task=task,
        headers=headers,
        decoded=True,
        body=body,
        on_ack=lambda *_: None,
    )


@pytest.mark.parametrize("stamped_headers", [None, [], ["other"]])
def test_a_value_that_no_stamp_names_is_none(stamped_headers):
    assert not stamps.matches({"mark": "a"}, stamped_headers, {"mark": "a", "other": "a"})


def test_only_what_carries_the_stamp_goes_be_it_with_a_template_or_whole(app, add, broadcast):
    mine = {"mark": "a"}
    for one in range(30):
        stamp = options(mine) if one % 3 else {}
        add.s("x" * 3000 * (one % 2)).set(task_id=str(one), **stamp).delay_until(FAR)
    told = []

    def listen(task_id, **_):
        told.append(task_id)

    signals.task_cancelled.connect(listen)

    app.control.revoke_by_stamped_headers(mine)

    assert waiting(app) == sorted(str(one) for one in range(0, 30, 3))
    assert sorted(told) == sorted(str(one) for one in range(30) if one % 3)
    [(command, facts)] = broadcast
    assert command == "revoke_by_stamped_headers"
    assert facts["arguments"]["headers"] == mine
    assert facts[TOLD] == 0


@pytest.mark.parametrize(
    "make",
    [
        chain,
        group,
        lambda one, two: chord([one, one.clone()], two),
    ],
    ids=["chain", "group", "chord"],
)
@pytest.mark.parametrize("both", [True, False])
def test_a_canvas_goes_where_all_of_its_tasks_carry_it(app, add, make, both):
    one, two = add.si(1), add.si(2)
    one.stamp(mark="a")
    two.stamp(mark="a" if both else "b")

    app.delayq.schedule(make(one, two), at=FAR)

    assert stamps.cancel_stamped(app.delayq.services, {"mark": "a"}) == both


def test_a_canvas_that_is_stamped_as_a_whole_goes(app, add):
    sig = chain(add.si(1), group(add.si(2), add.si(3)))
    sig.stamp(mark="a")

    app.delayq.schedule(sig, at=FAR)

    assert stamps.cancel_stamped(app.delayq.services, {"mark": ["z", "a"]}) == 1


@pytest.mark.parametrize("headers", [["mark=a"], ["mark=a", "x=y"], {"mark": "a"}])
def test_as_the_command_line_has_them(app, add, headers):
    add.s(1).set(**options({"mark": "a"})).delay_until(FAR)

    assert stamps.cancel_stamped(app.delayq.services, headers) == 1


@pytest.mark.parametrize("headers", [[], ["mark"], None, 3])
def test_what_is_neither_is_refused(app, headers):
    with pytest.raises(InvalidOption, match=r"headers is .*; expected a mapping"):
        stamps.cancel_stamped(app.delayq.services, headers)


def test_where_the_store_is_away_workers_are_told_and_ask_themselves(
    app, broadcast, monkeypatch, caplog
):
    def away(*_):
        raise StoreUnavailable("sift", "it is away", False)

    monkeypatch.setattr(stamped, "cancel_stamped", away)

    app.control.revoke_by_stamped_headers({"mark": "a"})

    [(_, facts)] = broadcast
    assert TOLD not in facts
    assert "not all that waits was looked at" in caplog.text


def test_of_several_workers_that_are_told_one_looks(app, add, monkeypatch):
    looked = []
    monkeypatch.setattr(stamped, "TOGETHER_MS", 10**15)  # all of it is one moment
    monkeypatch.setattr(stamped, "cancel", lambda _, headers: looked.append(headers))
    for thread in [
        stamped.cancel_in_background(app.delayq.services, {"mark": "a"}) for _ in range(5)
    ]:
        thread.join(30)

    assert looked == [{"mark": "a"}]


def test_who_tells_a_worker_does_not_wait_until_it_has_looked(app, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(stamped, "cancel", lambda *_: gate.wait(30))

    thread = stamped.cancel_in_background(app.delayq.services, {"mark": "a"})

    assert thread.is_alive()
    gate.set()
    thread.join(30)


def test_the_panel_does_not_wait_and_asks_only_where_nobody_has(app, monkeypatch):
    started = []
    control.wrap_panel()
    monkeypatch.setattr(stamped, "cancel_in_background", lambda _, headers: started.append(headers))
    command = Panel.data["revoke_by_stamped_headers"]
    try:
        command(worker(app), {"mark": "a"}, **{TOLD: 0})
        assert started == []
        command(worker(app), {"mark": "b"})
        assert worker_state.revoked_stamps == {"mark": ["a", "b"]}
    finally:
        worker_state.revoked_stamps.clear()

    assert started == [{"mark": "b"}]
