"""A call's target: either a task or a key. For any other value the error says which are valid."""

from uuid import UUID

import pytest

from celery_delayq.core.tasks.scheduled_task import target_of
from celery_delayq.errors import InvalidOption

ONE = UUID("6a1d1d9e-62a5-4f8e-9b6c-1f2e3d4c5b6a")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"task_id": "a"}, b"ia"),
        ({"task_id": "k\u00e9y"}, b"ik\xc3\xa9y"),
        ({"task_id": ONE}, b"i6a1d1d9e-62a5-4f8e-9b6c-1f2e3d4c5b6a"),
        ({"key": "i:1"}, b"ki:1"),
        ({"key": "\u00e9" * 127 + "x"}, b"k" + b"\xc3\xa9" * 127 + b"x"),
    ],
)
def test_an_id_or_a_key_is_a_target(given, expected):
    assert target_of(**given) == expected


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {},
            "task_id is None; expected text of 1 to 512 bytes, a UUID, a result or a ScheduledTask",
        ),
        ({"task_id": "a", "key": "b"}, "key is 'b'; expected a task's id or a key, not both"),
        ({"task_id": ""}, "task_id is ''; expected text of 1 to 512 bytes"),
        ({"key": ""}, "key is ''; expected text of 1 to 255 bytes, without NUL"),
        ({"key": "a\0b"}, r"key is 'a\x00b'; expected text of 1 to 255 bytes, without NUL"),
        ({"key": "\udcff"}, r"key is '\udcff'; expected text of 1 to 255 bytes, without NUL"),
        ({"key": b"a"}, "key is b'a'; expected text of 1 to 255 bytes, without NUL"),
    ],
)
def test_an_invalid_target_is_refused_in_a_sentence(given, sentence):
    with pytest.raises(InvalidOption) as caught:
        target_of(**given)
    assert str(caught.value) == sentence
