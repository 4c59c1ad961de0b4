"""Rules that code declares: a worker says them at each start, and they go with the code."""

from datetime import timedelta

import pytest

from celery_delayq.errors import InvalidOption

HOUR = timedelta(hours=1)


def test_declared_is_true_or_false(delayq, report):
    with pytest.raises(InvalidOption, match="declared is 1; expected true or false"):
        delayq.every("r", report.s(), HOUR, declared=1)
