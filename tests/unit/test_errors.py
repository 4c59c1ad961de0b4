"""Every error's whole sentence, its attributes, and the classes that it can be caught as."""

import importlib
import pickle
import pkgutil
import re
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import pytest

import celery_delayq
from celery_delayq import errors
from celery_delayq.core import errors as drawn_errors
from celery_delayq.errors import DelayQError

TESTS = Path(__file__).parents[1]


def row(error, sentence):
    return error, sentence, type(error)


SENTENCES = [
    row(errors.InvalidDueTime("x", "a time"), "'x' is not a due time; expected a time"),
    row(errors.NotADueTime(None, "a time"), "None is not a due time; expected a time"),
    row(
        errors.InvalidOption("limit", -1, "a whole number of tasks from 0"),
        "limit is -1; expected a whole number of tasks from 0",
    ),
    row(
        errors.InvalidSetting("delayq_batch_size", 1.5, "a whole number of tasks from 1 to 1000"),
        "delayq_batch_size is 1.5; expected a whole number of tasks from 1 to 1000",
    ),
    row(
        errors.UnknownSetting("delayq_batchsize", "delayq_batch_size"),
        "there is no setting delayq_batchsize; did you mean delayq_batch_size?",
    ),
    row(
        errors.InvalidDump(3, "it has no id; expected text"),
        "line 3 of the dump: it has no id; expected text",
    ),
    row(errors.InvalidDump(3), "the dump ends after line 2, before its closing line: it was cut"),
    row(errors.InvalidDump(1), "the dump is empty: it was cut"),
    row(
        errors.NotLoaded("a", "no queue is bound to it"),
        "task 'a' was not loaded: no queue is bound to it",
    ),
    *(
        row(
            errors.NotUndone("a", reason, detail), f"the cancel of task 'a' cannot be undone: {why}"
        )
        for reason, detail, why in (
            ("unknown", "", "no cancel of it is kept; see delayq_undo"),
            ("waits", "", "it waits already"),
            ("taken", "", "another task has its id"),
            ("held", "b", "the task b has its unique key now"),
            ("left", "", "a task with its id has left the store since"),
            ("overdue", "2030-01-31", "its due time, 2030-01-31, is over; run it now instead"),
            ("revoked", "", "its id was sent to the workers, which would drop it"),
        )
    ),
    row(
        errors.NotATask("signature", 1, "a task or a signature"),
        "signature is 1; expected a task or a signature",
    ),
    row(
        errors.AlreadyScheduled("a"),
        "task 'a' is already scheduled; cancel it first, pass another task_id, or set "
        "delayq_conflict to choose which one stays",
    ),
    row(
        errors.AlreadyScheduled("a", "b"),
        "task 'b' is already scheduled under this key; cancel it first, or set delayq_conflict "
        "to choose which one stays",
    ),
    row(errors.InFlight("a"), "task 'a' is being published this moment; try again shortly"),
    row(
        errors.KeyHeld("a", "b"),
        "task 'b' no longer waits, but still holds this key; pass conflict='replace' to wait "
        "behind it, or another key; delayq.free(key=...) frees it",
    ),
    row(
        errors.KeyHeld("a", "b", datetime(2030, 1, 31, 9, tzinfo=timezone.utc)),
        "task 'b' no longer waits, but still holds this key until 2030-01-31 09:00:00+00:00 at "
        "the latest; pass conflict='replace' to wait behind it, or another key; "
        "delayq.free(key=...) frees it",
    ),
    row(
        errors.AlreadyDead("a"),
        "task 'a' is dead, as it could not be delivered; retry it with delayq.retry('a'), "
        "remove it with delayq.remove('a'), or pass another task_id",
    ),
    row(errors.AlreadyTaken("a"), "task 'a' was scheduled when this message was delivered before"),
    row(
        errors.ItemsRefused(2, 450, 17, "task 'a' is already scheduled"),
        "2 of 450 items were refused; the first is number 17: task 'a' is already scheduled",
    ),
    row(
        errors.PutOffTooOften("shop.remind", 100),
        "task 'shop.remind' was put off 100 times in a row; eagerly no time passes, so provide "
        "what it waits for before the call",
    ),
    row(
        errors.MessageTooLarge("a", 1_000_001, 1_000_000),
        "the message of task 'a' has 1000001 bytes; delayq_max_message is 1000000; pass a "
        "reference to the data, or raise the setting",
    ),
    row(
        errors.UnreadableRecord("a", "no record"),
        "the record of task 'a' cannot be read: no record",
    ),
    row(
        errors.SwitchedOff("shop"),
        "the DelayQ of the app 'shop' is switched off by delayq_enabled = False",
    ),
    row(
        errors.NoLeaf("canvas"),
        "this celery_delayq has no 'canvas': it is not in celery_delayq/core/leaves.py",
    ),
    row(errors.NoDelayQ("shop"), "the app 'shop' has no DelayQ; make one with DelayQ(app)"),
    row(
        errors.NotScheduled("a"), "task 'a' was sent, not scheduled: its apply_async drops options"
    ),
    row(
        errors.CallRejected("t"),
        "the call was rejected: the apply_async of task 't' sent nothing and returned no id",
    ),
    row(
        errors.LibraryChanged(["m:f is gone"], {"celery": "6.0.0"}, {"celery": ("5.4", "5.7")}),
        "m:f is gone: installed are celery 6.0.0; celery_delayq was tried with celery 5.4 to "
        "5.7; install one of these, or a later celery_delayq",
    ),
    row(
        errors.StoreForbidden("redis://red:6379/0", "delayq"),
        "a test would reach the store redis://red:6379/0 (prefix delayq), which pytest's option"
        " delayq_forbid_store forbids: request the fixture delayq, or use isolated(app)",
    ),
    row(errors.CannotIsolate("one test at a time"), "one test at a time"),
    row(
        errors.EndlessTasks(1000, "shop.remind"),
        "run_due() ran 1000 tasks, the last of them shop.remind, and more are due: does one "
        "send itself again at once? If not, give it a higher limit",
    ),
    row(
        errors.RulesRemain(2),
        "2 of these tasks are runs of recurring rules, which go on to write more; if beat is to "
        "send them, start beat, and then: celery -A proj delayq rules remove --all",
    ),
    row(errors.BrokerDown("refused"), "the broker cannot be reached: refused"),
    row(errors.StoreError("cancel", "NOPERM"), "cancel failed: NOPERM"),
    row(
        errors.StoreDiffers("layout", "2", "1"),
        "the store has layout '2', this process '1'; give it a delayq_prefix of its own, or "
        "make all processes agree",
    ),
    row(
        errors.StoreDiffers("delayq_shards", "3", "1"),
        "the store has delayq_shards '3', this process '1'; set it to 3, or run: celery -A proj"
        " delayq reshard 1",
    ),
    row(errors.StoreFull("schedule", "OOM"), "schedule failed: OOM"),
    row(errors.StoreUnavailable("schedule", "refused"), "schedule failed: refused"),
]


def test_an_error_says_its_sentence():
    for error, sentence, _ in SENTENCES:
        assert str(error) == sentence


@pytest.mark.parametrize(
    ("values", "named"), [((1, 2, 3, 4), {}), ((1,), {}), ((1, 2, 3), {"other": 4})]
)
def test_an_error_takes_the_values_that_its_class_declares(values, named):
    with pytest.raises(TypeError, match=r"^InvalidOption takes name, value, expected$"):
        errors.InvalidOption(*values, **named)


def test_an_error_without_values_takes_a_message():
    assert str(DelayQError("a message")) == "a message"


def all_errors():
    """Every error of this package, in any module."""
    for module in pkgutil.walk_packages(celery_delayq.__path__, "celery_delayq."):
        if "web.django." not in module.name:  # Django imports these, once it is set up
            importlib.import_module(module.name)
    found, classes = [DelayQError], [DelayQError]
    while classes:
        classes = [each for one in classes for each in one.__subclasses__()]
        # Classes of tests, and those that a test library made, are not the package's.
        found += [each for each in classes if each.__module__.startswith("celery_delayq")]
    return sorted(set(found), key=lambda one: one.__name__)


def test_every_error_is_among_those_tested_here():
    assert {*all_errors()} == {DelayQError, *(kind for _, _, kind in SENTENCES)}


def test_every_error_is_importable_from_one_place():
    for error in all_errors():
        assert getattr(errors, error.__name__) is error


def test_the_tree_that_is_drawn_is_that_of_the_classes():
    path, drawn = [], {}
    for branch, name, note in re.findall(
        r"^([│├└─ ]*)(\w+) *(.*)$", drawn_errors.__doc__.partition("\n\n")[2], re.MULTILINE
    ):
        path = [*path[: len(branch) // 4], name]
        drawn[name] = (path[-2:-1], set(re.findall(r"\w+Error\b", note)))
    assert drawn == {one.__name__: bases_of(one) for one in all_errors()}


def bases_of(error):
    """The name of this package's error that it derives from, and its other bases."""
    own = [base.__name__ for base in error.__bases__ if base in all_errors()]
    foreign = {base.__name__ for base in error.__bases__ if base not in all_errors()}
    return own, foreign - {"Exception"}


def test_every_error_is_documented():
    for error in all_errors():
        assert vars(error)["__doc__"].partition("\n")[0].endswith("."), error


def test_a_base_says_nothing_that_one_derived_from_it_denies():
    # One means that nothing was done; with the other, this is unknown.
    for error in all_errors():
        if error.__subclasses__():
            assert not re.search(r"\b(nothing|never|always|unchanged)\b", error.__doc__), error


def test_every_error_is_met_by_a_test_of_what_raises_it():
    tests = "".join(
        path.read_text("utf-8") for path in TESTS.rglob("test_*.py") if path != Path(__file__)
    )
    for error in all_errors():
        # A bulk and a load report errors in their result.
        name = error.__name__
        assert re.search(rf"raises\([^)]*\b{name}\b|isinstance\(\w+, {name}\)", tests), name


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (timedelta(hours=2), "2 hours"),
        (timedelta(days=1, minutes=1), "1 day 1 minute"),
        (
            timedelta(days=84_000, hours=3, minutes=30, seconds=5),
            "84000 days 3 hours 30 minutes 5 seconds",
        ),
        (timedelta(seconds=1.5), "1.5 seconds"),
        (timedelta(milliseconds=1), "0.001 seconds"),
        (timedelta(microseconds=1), "0.000001 seconds"),
        (timedelta(hours=-2), "minus 2 hours"),
        (timedelta(0), "0 seconds"),
        (timedelta.max, "999999999 days 23 hours 59 minutes 59.999999 seconds"),
        (datetime.fromisoformat("2300-01-02"), "2300-01-02T00:00:00"),
        (datetime(2300, 1, 2, 9, tzinfo=timezone.utc), "2300-01-02T09:00:00+00:00"),
        (date(2300, 1, 2), "2300-01-02"),
    ],
)
def test_an_error_tells_a_time_as_people_write_it(value, shown):
    for error, sentence in (
        (errors.InvalidDueTime(value, "a time"), f"{shown} is not a due time; expected a time"),
        (errors.InvalidOption("grace", value, "less"), f"grace is {shown}; expected less"),
        (
            errors.InvalidOption("t", {"after": value}, "x"),
            f"t is {{'after': {shown}}}; expected x",
        ),
    ):
        assert str(error) == sentence


class _Odd(timedelta):
    """A class of another library, with its own ``repr``."""

    def __repr__(self):
        return "odd"


def test_an_error_tells_a_time_of_another_class_as_that_has_it():
    assert str(errors.InvalidDueTime(_Odd(1), "a time")) == "odd is not a due time; expected a time"


def test_an_error_survives_the_way_to_another_process():
    # If a task raises it, it passes through the pool's pipe to the result backend.
    for error, _, _ in SENTENCES:
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert str(copy) == str(error)
        assert vars(copy) == vars(error)

    by_name = errors.InvalidOption(name="limit", value=-1, expected="more")
    assert str(pickle.loads(pickle.dumps(by_name))) == "limit is -1; expected more"
