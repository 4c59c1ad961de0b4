"""Log lines on tasks that their list refused."""

import logging

import pytest

from celery_delayq.core.handover.dead import report
from celery_delayq.core.hooks import Hooks
from celery_delayq.core.store.values import Seen


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "1 task was refused by its list and keeps waiting: WRONGTYPE"),
        (2, "2 tasks were refused by their list and keep waiting: WRONGTYPE"),
    ],
)
def test_the_line_has_a_singular_and_a_plural(caplog, count, said):
    seen = Seen(0, 0, None, None, None, None, False, [], 0.0, refused=[("WRONGTYPE", count)])

    with caplog.at_level(logging.WARNING):
        report(Hooks(), seen)

    assert caplog.messages == [said]
