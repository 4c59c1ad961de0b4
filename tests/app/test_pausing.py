"""`DelayQ.pause`, `resume` and `pauses`, as users call them."""

import pytest

from celery_delayq import State
from celery_delayq.errors import InvalidOption
from tests.app.support import FAR, LONG_AGO


@pytest.fixture
def delayq(app):
    return app.delayq


LANES = [{"all": True}, {"queue": "mail"}, {"task": "t"}]


@pytest.mark.parametrize("of", LANES, ids=["all", "queue", "task"])
def test_a_paused_task_waits_and_is_delivered_when_it_is_resumed(app, delayq, of):
    delayq.pause(**of)
    app.send_task("t", queue="mail", task_id="a", delayq_at=LONG_AGO)
    app.send_task("t", queue="mail", task_id="b", delayq_at=FAR)
    assert delayq.hand_over() == 0
    assert (delayq.state("a"), delayq.state("b")) == (State.PAUSED, State.SCHEDULED)
    assert delayq.get("a").state is State.PAUSED
    assert delayq.counts().paused == 1
    [pause] = delayq.pauses()
    assert (pause.queue, pause.task) == (of.get("queue"), of.get("task"))
    assert (pause.parked, pause.resumed, pause.rate) == (1, False, None)
    assert delayq.resume(**of) is True
    assert delayq.hand_over() == 1
    assert (delayq.pauses(), delayq.resume(**of)) == ([], False)


def test_a_task_is_paused_by_itself(app, delayq):
    @app.task(name="shop.remind")
    def remind(): ...

    delayq.pause(task=remind)
    assert delayq.pauses()[0].task == "shop.remind"
    remind.delay_until(LONG_AGO)
    assert delayq.hand_over() == 0
    assert delayq.resume(task="shop.remind")


NAMES = "expected a name of 1 to 512 bytes"
ONE = "expected queue= or task=, or all=True for everything, and only one of them"
WRONG = {
    "empty": ({"queue": ""}, f"queue is ''; {NAMES}"),
    "bytes": ({"queue": b"mail"}, f"queue is b'mail'; {NAMES}"),
    "a number": ({"task": 5}, f"task is 5; {NAMES}"),
    "no text": ({"task": "\udcff"}, f"task is '\\udcff'; {NAMES}"),
    "nothing": ({}, f"all is False; {ONE}"),
    "both": ({"queue": "a", "task": "b"}, f"all is False; {ONE}"),
    "everything and a queue": ({"queue": "a", "all": True}, f"all is True; {ONE}"),
    "no flag": ({"all": "mail"}, f"all is 'mail'; {ONE}"),
}


@pytest.mark.parametrize("method", ["pause", "resume"])
@pytest.mark.parametrize(("of", "sentence"), WRONG.values(), ids=WRONG)
def test_a_call_that_names_nothing_or_too_much_is_refused(delayq, method, of, sentence):
    with pytest.raises(InvalidOption) as caught:
        getattr(delayq, method)(**of)
    assert str(caught.value) == sentence
    assert delayq.pauses() == []


@pytest.mark.parametrize("rate", [0, -1, 0.0009, 1_000_001, float("nan"), "5", True])
def test_a_value_that_is_no_rate_is_refused_and_the_pause_stays(delayq, rate):
    delayq.pause(all=True)
    with pytest.raises(InvalidOption, match=r"rate is .*; expected a number of tasks a second"):
        delayq.resume(all=True, rate=rate)
    assert delayq.pauses()[0].resumed is False


def test_a_selection_tells_the_paused_while_scanners_move_them(app, delayq):
    """Between two of its steps, scanners move them from the due index to the parked one."""
    delayq.pause(queue="mail")
    for number in range(3):
        app.send_task("t", queue="mail", task_id=str(number), delayq_at=LONG_AGO + number)
    found = []
    for task in delayq.select(state=State.PAUSED):
        found.append(task.id)
        delayq.hand_over()
    assert found == ["0", "1", "2"]


def test_before_it_is_due_a_task_says_what_of_it_is_paused(app, delayq):
    app.send_task("t", queue="mail", task_id="a", delayq_at=FAR)
    assert delayq.get("a").paused_by == ()
    delayq.pause(queue="mail")
    delayq.pause(task="t")
    delayq.pause(all=True)
    told = ("everything", "queue mail", "task t")
    assert (delayq.get("a").state, delayq.get("a").paused_by) == (State.SCHEDULED, told)
    assert [one.paused_by for one in [*delayq.tasks(), *delayq.select(queue="mail")]] == [told] * 2


def test_a_pause_and_its_end_are_in_the_log(delayq, caplog):
    caplog.set_level("INFO", logger="celery_delayq.operations.pauses")

    delayq.pause(queue="mail")
    delayq.resume(queue="mail", rate=0.5)
    delayq.resume(task="t")

    assert caplog.messages == [
        "queue mail is paused",
        "queue mail is resumed, at 0.5 tasks a second",
    ]
