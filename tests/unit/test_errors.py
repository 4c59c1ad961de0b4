"""Every error's whole sentence, what it carries, and what it can be caught as."""

import pickle

import pytest
from kombu.exceptions import OperationalError

from celery_delayq import errors
from celery_delayq.errors import (
    AlreadyScheduled,
    BrokerDown,
    DelayQError,
    InvalidDueTime,
    InvalidOption,
    InvalidSetting,
    LibraryChanged,
    NoDelayQ,
    NotADueTime,
    NotATask,
    NotScheduled,
    StoreError,
    StoreFull,
    StoreUnavailable,
    UnknownSetting,
    UnreadableRecord,
)

SENTENCES = [
    (
        InvalidDueTime("x", "a time"),
        "'x' is not a due time; expected a time",
        (DelayQError, ValueError),
    ),
    (
        NotADueTime(None, "a time"),
        "None is not a due time; expected a time",
        (InvalidDueTime, TypeError, ValueError),
    ),
    (
        InvalidOption("limit", -1, "a whole number of tasks from 0"),
        "limit is -1; expected a whole number of tasks from 0",
        (DelayQError, ValueError),
    ),
    (
        InvalidSetting("delayq_batch_size", 1.5, "a whole number of tasks from 1 to 1000"),
        "delayq_batch_size is 1.5; expected a whole number of tasks from 1 to 1000",
        (InvalidOption,),
    ),
    (
        UnknownSetting("delayq_batchsize", "delayq_batch_size"),
        "there is no setting delayq_batchsize; did you mean delayq_batch_size?",
        (InvalidSetting,),
    ),
    (
        NotATask("signature", 1, "a task or a signature"),
        "signature is 1; expected a task or a signature",
        (InvalidOption, TypeError),
    ),
    (
        AlreadyScheduled("a"),
        "task 'a' is already scheduled; cancel it first, or pass another task_id",
        (DelayQError, ValueError),
    ),
    (
        UnreadableRecord("a", "no record"),
        "the record of task 'a' cannot be read: no record",
        (DelayQError,),
    ),
    (
        NoDelayQ("shop"),
        "the app 'shop' has no DelayQ; make one with DelayQ(app)",
        (DelayQError,),
    ),
    (
        NotScheduled("a"),
        "task 'a' was sent, not scheduled: its apply_async drops options",
        (DelayQError,),
    ),
    (
        LibraryChanged(["m:f is gone"], {"celery": "6.0.0"}, {"celery": ("5.4", "5.7")}),
        (
            "m:f is gone: installed are celery 6.0.0; celery_delayq was tried with celery 5.4 to "
            "5.7; install one of these, or a later celery_delayq"
        ),
        (DelayQError,),
    ),
    (BrokerDown("refused"), "the broker cannot be reached: refused", (DelayQError,)),
    (StoreError("cancel", "NOPERM"), "cancel failed: NOPERM", (DelayQError,)),
    (StoreFull("schedule", "OOM"), "schedule failed: OOM", (StoreError,)),
    (
        StoreUnavailable("schedule", "refused"),
        "schedule failed: refused",
        (StoreError, OperationalError),
    ),
]


@pytest.mark.parametrize(
    ("error", "sentence", "kinds"), SENTENCES, ids=lambda value: type(value).__name__
)
def test_an_error_says_its_sentence_and_can_be_caught_as(error, sentence, kinds):
    assert str(error) == sentence
    for kind in kinds:
        assert isinstance(error, kind)


def test_every_error_is_among_those_tested_here():
    declared = {
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, DelayQError) and each is not DelayQError
    }
    assert declared == {type(error) for error, _, _ in SENTENCES}


def test_errors_carry_their_facts():
    assert InvalidDueTime("x", "a time").value == "x"
    assert (InvalidOption("limit", -1, "more").name, InvalidOption("a", 2, "b").value) == (
        "limit",
        2,
    )
    assert AlreadyScheduled("a").task_id == "a"
    assert (UnreadableRecord("a", "b").task_id, UnreadableRecord("a", "b").why) == ("a", "b")
    assert (StoreFull("s", "w").step, StoreFull("s", "w").why) == ("s", "w")


@pytest.mark.parametrize("error", [one for one, _, _ in SENTENCES], ids=lambda e: type(e).__name__)
def test_an_error_survives_the_way_to_another_process(error):
    # Raised in a task, it travels through the pool's pipe to the result backend.
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
