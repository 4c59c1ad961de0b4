"""The API of `DelayQ`: its names, their documentation, and its errors."""

import inspect

import pytest
from kombu.exceptions import OperationalError

import celery_delayq
from celery_delayq import DelayQ, errors
from tests.unit.test_errors import SENTENCES

METHODS = sorted(name for name, _ in inspect.getmembers(DelayQ, callable) if name[0] != "_")
# The docstring of the class describes them once, for all methods that take a task.
WHO = {"task_id", "key"}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_says_what_it_does(name):
    method = getattr(DelayQ, name)
    says = inspect.getdoc(method) or ""
    assert says.partition("\n")[0].endswith(".")
    _, *taken = inspect.signature(method).parameters.values()  # the first one is the object
    # `*arguments` of schedule only makes a better error.
    asked = {one.name for one in taken if one.kind is not inspect.Parameter.VAR_POSITIONAL}
    told = [
        one
        for one in asked
        if f"\n    {one}: " in says or f"\n    **{one}: " in says or f"*{one}*" in says
    ]
    # A method that takes only a task's id, or a request, says so in its first line.
    assert len(asked - WHO) <= 1 or asked - WHO <= set(told)


def test_every_attribute_is_named_in_the_docstring(make_app):
    attributes = {name for name in vars(DelayQ(make_app("redis://"))) if not name.startswith("_")}
    told = inspect.getdoc(DelayQ).partition("Attributes:\n")[2]
    assert attributes == {line.strip().partition(":")[0] for line in told.splitlines()}


def test_nothing_else_is_public(make_app):
    delayq = DelayQ(make_app("redis://"))
    public = {name for name in dir(delayq) if not name.startswith("_")}
    assert public == {*METHODS, *vars(delayq)}


def test_the_class_says_who_is_meant():
    says = inspect.getdoc(DelayQ)
    assert all(word in says for word in ("id", "UUID", "``key``"))


def test_the_public_names_are_few():
    assert len(celery_delayq.__all__) <= 11
    assert all(hasattr(celery_delayq, name) for name in celery_delayq.__all__)


# Each error survives Celery's handling of exceptions; tests/unit/test_errors.py has the rest.


EXAMPLES = [error for error, _, _ in SENTENCES]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_that_a_task_raised_is_read_from_the_result_backend(app, error):
    stored = app.backend.prepare_exception(error, serializer="json")

    read = app.backend.exception_to_python(stored)

    assert type(read) is type(error)
    assert str(read) == str(error)


def test_the_store_out_of_reach_is_what_callers_of_celery_catch():
    assert issubclass(errors.StoreUnavailable, OperationalError)
    assert not issubclass(errors.StoreFull, OperationalError)
