"""A dump of several shards goes into any number of shards."""

import pytest

from tests.app.test_dump import through_text
from tests.app.test_several_shards import app, many

__all__ = ["app", "many"]


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_each_task_is_found_there_by_its_key_and_by_its_id(delayq_app, url, delayq, many, shards):
    lines = through_text(delayq)
    other = delayq_app(url, delayq_shards=shards, delayq_prefix="other").delayq
    assert other.load(lines).loaded == 30
    assert other.load(lines).here == 30
    assert other.counts().scheduled == 30
    for number in range(0, 30, 3):
        found = other.get(key=f"many-{number}")
        assert other.get(many[number]) == found
        assert found.args == (number,)
        assert other.cancel(many[number])
    assert list(other.check()) == list(delayq.check()) == []
