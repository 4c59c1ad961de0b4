"""Reads that are made at once, where the context asks for it, and one after the other elsewhere."""

import threading
from contextvars import ContextVar

import pytest

from celery_delayq.core.threads import AT_ONCE, THREADS, NoAnswer, gather, within
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.core


@pytest.fixture
def at_once():
    token = AT_ONCE.set(True)
    yield
    AT_ONCE.reset(token)


def test_calls_are_made_one_after_the_other_by_default():
    made = []
    assert gather(lambda: made.append(1), lambda: made.append(2), lambda: 3) == [None, None, 3]
    assert made == [1, 2]


def test_calls_that_wait_for_each_other_end_at_once_in_their_order(at_once):
    assert gather() == []
    here = threading.Barrier(3, timeout=PATIENCE)

    def meet(name):
        here.wait()
        return name

    assert gather(lambda: meet("a"), lambda: meet("b"), lambda: meet("c")) == ["a", "b", "c"]


def test_each_call_has_the_context_of_the_caller(at_once):
    name = ContextVar("name")
    name.set("caller")
    assert gather(name.get, name.get) == ["caller", "caller"]


def test_the_error_of_the_first_call_that_failed_comes_when_all_have_ended(at_once):
    ended = []

    def fail(error):
        ended.append(error)
        raise error

    with pytest.raises(KeyError):
        gather(lambda: ended.append("a"), lambda: fail(KeyError()), lambda: fail(OSError()))
    assert len(ended) == 3


def test_calls_within_a_call_are_made_at_once_too(at_once):
    here = threading.Barrier(4, timeout=PATIENCE)
    assert gather(lambda: gather(here.wait, here.wait), lambda: gather(here.wait, here.wait))


def test_a_call_without_an_answer_in_time_goes_on_and_frees_its_place_when_it_ends():
    over, begun, made = threading.Event(), [], []

    def hold():
        begun.append(True)
        over.wait(2 * PATIENCE)

    def has_each_place():
        # Not at the first try, if a call of an earlier test still has one.
        with pytest.raises(NoAnswer):
            within(0, hold)
        return len(begun) == THREADS

    eventually(has_each_place)
    with pytest.raises(NoAnswer):
        within(PATIENCE, lambda: made.append("one too many"))
    over.set()
    eventually(lambda: _is_made(made))
    assert made == ["made"]


def _is_made(made):
    try:
        within(PATIENCE, lambda: made.append("made"))
    except NoAnswer:
        return False
    return True
