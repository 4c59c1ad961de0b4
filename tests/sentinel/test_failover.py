"""A master fails while a caller schedules and cancels, and a scanner delivers."""

import pytest

from tests.sentinel.faults import demote, failover, kill, silence
from tests.sentinel.trial import tried

pytestmark = pytest.mark.libraries


@pytest.mark.parametrize("fault", [kill, silence, failover, demote])
def test_all_are_at_work_again_soon_and_each_task_is_in_one_place(
    start_group, make_delayq, start_scanner, fault
):
    group = start_group()

    trial = tried(group, lambda: make_delayq(group), start_scanner, fault)

    assert trial.problems == []
