"""Tests of the scenes with their real times and no server, as you would test your own tasks."""

from datetime import timedelta
from threading import Lock

from scenes import form, latest, lock, reading, topup, welcome

from celery_delayq import Outcome


def answers(ran):
    return [task.get() for task in ran]


def test_who_does_not_pay_is_reminded_once(delayq):
    topup.page_opened("anna")
    topup.page_opened("ben")
    delayq.advance(minutes=20)
    assert topup.page_opened("anna").existed
    assert topup.paid("ben") is Outcome.DONE

    delayq.advance(minutes=9)
    assert delayq.run_due() == []
    delayq.advance(minutes=1)
    assert answers(delayq.run_due()) == ["anna, your top-up is not paid"]
    assert topup.paid("anna") is Outcome.HANDED_OVER


def test_reading_puts_the_reminder_off_for_a_day_at_most(delayq):
    for page in range(1, 17):
        reading.read("cleo", page)
        assert delayq.run_due() == []
        delayq.advance(minutes=90)

    assert answers(delayq.run_due()) == ["cleo, go on after page 16"]


def test_all_who_registered_are_moved_by_their_tag(delayq):
    for user, minutes in {"emil": 20, "fay": 30}.items():
        welcome.registered(user, wait=timedelta(minutes=minutes))
    welcome.left("hal", wait=timedelta(minutes=20))

    assert welcome.move_all("registered", by=timedelta(hours=1)) == 2

    delayq.advance(minutes=30)
    assert answers(delayq.run_due()) == ["hal, have a look at the news"]
    delayq.advance(minutes=49)
    assert delayq.run_due() == []
    delayq.advance(minutes=1)
    assert answers(delayq.run_due()) == ["emil, have a look at the tour"]
    delayq.advance(minutes=10)
    assert answers(delayq.run_due()) == ["fay, have a look at the tour"]


def test_a_form_is_sent_as_it_was_edited_last(delayq):
    form.write(1, "helo")
    form.write(2, "goodbye")
    seen = form.look(1).revision
    assert form.edit(1, "hello", seen) is Outcome.DONE
    assert form.edit(1, "hallo", seen) is Outcome.UNCHANGED
    assert form.put_off(1, by=timedelta(hours=1)) is Outcome.DONE

    delayq.advance(minutes=1)
    assert answers(delayq.run_due()) == ["form 2 says 'goodbye'"]
    form.submit(1)
    assert answers(delayq.run_due()) == ["form 1 says 'hello'"]


def test_a_task_whose_lock_is_taken_runs_when_it_is_free(delayq, monkeypatch):
    taken = Lock()
    monkeypatch.setattr(lock, "lock_of", lambda account: taken)
    with taken:
        result = lock.bill.delay(7, again=60)  # a busy machine may need five seconds from here
        delayq.run_due()
        assert result.state == "SCHEDULED"

    assert delayq.run_due() == []
    delayq.advance(seconds=60)
    assert answers(delayq.run_due()) == ["account 7 is billed"]


def test_the_page_has_ten_lines_at_most(delayq):
    for number in range(20):
        topup.page_opened(number)
        assert len(latest.page()) == min(10, number + 1)
    topup.paid(3)

    assert latest.page()[:2] == ["cancelled topup:3", "scheduled topup:19"]
