"""Errors: the class builds the sentence, and each survives what Celery does with exceptions."""

import inspect
import pickle

import pytest
from kombu.exceptions import OperationalError

from celery_delayq import errors

SENTENCES = {
    errors.NoDelayQ("shop"): "the app 'shop' has no DelayQ; make one with DelayQ(app)",
    errors.NotScheduled("a"): "task 'a' was sent, not scheduled: its apply_async drops options",
    errors.InvalidDueTime("x", "a time"): "'x' is not a due time; expected a time",
    errors.NotADueTime([1], "a time"): "[1] is not a due time; expected a time",
    errors.InvalidOption("limit", -1, "a number"): "limit is -1; expected a number",
    errors.InvalidSetting("delayq_lease", 0, "a number"): "delayq_lease is 0; expected a number",
    errors.NotATask("signature", 5, "a task"): "signature is 5; expected a task",
    errors.AlreadyScheduled("a"): (
        "task 'a' is already scheduled; cancel it first, or pass another task_id"
    ),
    errors.UnreadableRecord("a", "cut short"): "the record of task 'a' cannot be read: cut short",
    errors.BrokerDown("gone"): "the broker cannot be reached: gone",
    errors.StoreError("schedule", "refused"): "schedule failed: refused",
    errors.StoreFull("schedule", "OOM"): "schedule failed: OOM",
    errors.KeysLeft("unlink", "gone", "{a:0}:"): (
        "unlink failed: gone; keys that begin with {a:0}: may be left in Redis, for ten minutes at "
        "most if it let this set their time to live"
    ),
    errors.StoreUnavailable("schedule", "timed out"): "schedule failed: timed out",
}
EXAMPLES = list(SENTENCES)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_says_what_is_wrong_and_what_was_seen(error):
    assert str(error) == SENTENCES[error]


def test_every_error_is_here():
    classes = {
        value
        for _, value in inspect.getmembers(errors, inspect.isclass)
        if issubclass(value, errors.DelayQError) and value is not errors.DelayQError
    }
    assert {type(error) for error in EXAMPLES} == classes


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_after_a_worker_process_pickled_it(error):
    read = pickle.loads(pickle.dumps(error))

    assert type(read) is type(error)
    assert str(read) == str(error)
    assert vars(read) == vars(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_that_a_task_raised_is_read_from_the_result_backend(app, error):
    stored = app.backend.prepare_exception(error, serializer="json")

    read = app.backend.exception_to_python(stored)

    assert type(read) is type(error)
    assert str(read) == str(error)


def test_the_store_out_of_reach_is_what_callers_of_celery_catch():
    assert issubclass(errors.StoreUnavailable, OperationalError)
    assert not issubclass(errors.StoreFull, OperationalError)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_every_error_is_a_delayq_error(error):
    assert isinstance(error, errors.DelayQError)
