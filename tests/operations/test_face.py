"""The methods of DelayQ, called with unusual ids."""

import contextlib
import inspect
import re

import pytest

from celery_delayq.core.store import State
from celery_delayq.errors import InvalidOption
from tests.app.support import FAR
from tests.operations.table import each_face

# Ids of the longest length, and ids that terminals, scripts and formats might misread.
STRANGE = [
    *("two\nlines", "null\x00byte", "\x1b[31mred\x1b[0m", "right\u202eleft", "süß日本", "--json"),
    *("%s{0}{id}", "'; return 1 --", "a:b*c?[d]", "\\x00", " ", "a" * 512),
]
# Not text, not UTF-8, empty, or too long.
NO_ID = ["a" * 10_000, "\udcff", "", b"bytes", 5, None, ["a"]]


@pytest.fixture
def delayq(app):
    app.send_task("t", task_id="bystander", delayq_at=FAR)
    yield app.delayq
    assert app.delayq.state("bystander") is State.SCHEDULED


@each_face
def test_a_strange_id_is_an_id(delayq, operation, method):
    call = operation.face[method]
    for task_id in STRANGE:
        call(delayq, task_id)
        if operation.script not in ("schedule", "load"):
            delayq.app.send_task("t", task_id=task_id, delayq_at=FAR)
            call(delayq, task_id)
        assert (delayq.get(task_id) is None) == (operation.ends != ""), ascii(task_id)


@each_face
def test_an_invalid_id_is_refused_in_a_sentence_and_nothing_is_scheduled(delayq, operation, method):
    for task_id in NO_ID:
        asks = "task_id" in inspect.signature(getattr(delayq, method)).parameters
        expected = pytest.raises if asks else contextlib.suppress
        with expected(InvalidOption) as caught:
            operation.face[method](delayq, task_id)
        if asks:
            more = "" if isinstance(task_id, str) else ", a UUID, a result or a ScheduledTask"
            several = (
                "; pass one at a time, or use select(...)" if isinstance(task_id, list) else ""
            )
            says = re.escape(f"; expected text of 1 to 512 bytes{more}{several}")
            assert re.fullmatch(f"task_id is .*{says}", str(caught.value))
            assert len(str(caught.value)) < 600
        assert {one.id for one in delayq.tasks()} & {"bystander", *map(str, NO_ID)} == {"bystander"}
