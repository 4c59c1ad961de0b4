"""Each error survives Celery's handling of exceptions; tests/unit/test_errors.py has the rest."""

import pytest
from kombu.exceptions import OperationalError

from celery_delayq import errors
from tests.unit.test_errors import SENTENCES

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
