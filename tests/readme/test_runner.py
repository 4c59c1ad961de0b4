"""The runner of the examples detects a broken promise."""

import pytest

from tests.readme.document import Block
from tests.readme.runner import run
from tests.readme.shape import shape

pytestmark = pytest.mark.thorough


def example(text):
    return Block("README.md", "section", "python", 1, text)


@pytest.mark.parametrize(
    "text",
    [
        "1 + 1  # -> 2",
        "'a'  # -> a",
        "'a'  # -> 'a'",
        "int('x')  # raises ValueError",
        "print(\n    1\n)  # -> None",
    ],
)
def test_a_kept_promise_is_counted(text):
    assert run(example(text), {}) == 1


@pytest.mark.parametrize(
    "text",
    [
        "1 + 1  # -> 3",
        "int('x')  # raises TypeError",
        "1  # raises ValueError",
        "x = 1  # -> 1",
        "def f():\n    g()  # -> 1",
    ],
)
def test_a_promise_that_is_not_kept_is_found_out(text):
    with pytest.raises(AssertionError):
        run(example(text), {})


def test_an_error_that_nobody_promised_is_raised():
    with pytest.raises(ZeroDivisionError):
        run(example("1 / 0  # -> 1"), {})


def test_outputs_of_two_runs_have_one_shape_and_other_words_another():
    one = "task 8b0ce8b4-1f0f-4cd5-9a1c-9d1f7b6f7a53 on w1@here succeeded in 0.25s at 09:15"
    two = "task 11111111-2222-3333-4444-555555555555 on w1@there-2 succeeded in 12.5s at 23:59"
    assert shape(one) == shape(two)
    assert shape(one) != shape(one.replace("succeeded", "failed"))
