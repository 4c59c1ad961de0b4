"""A minute of soak: callers at work, fault after fault, and books that balance in the end.

Ten minutes, and other faults, are ``./tests/run soak``.
"""

import pytest

from tests.lab.faults.site import DIRECT, TO_RABBIT, TO_REDIS
from tests.lab.faults.soak import books, soak

SECONDS = 20
SEED = "1"

# Most of its time is waiting: while faults last, and until tasks are due.
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(300)]


def assert_nothing_differs(path, rabbit=None):
    faults = []
    outcome = soak(path, SECONDS, SEED, rabbit=rabbit, say=faults.append)
    told = [*faults, books(outcome), *outcome.differences]
    assert not outcome.differences, "\n".join(told)
    verdict = outcome.verdict
    assert min(verdict.handed_over, verdict.cancelled, verdict.waiting) > 0, "\n".join(told)


@pytest.mark.parametrize("path", [DIRECT, TO_REDIS])
def test_nothing_differs_after_a_soak(path):
    assert_nothing_differs(path)


def test_nothing_differs_after_a_soak_with_rabbitmq(rabbitmq_server):
    assert_nothing_differs(TO_RABBIT, rabbitmq_server)
