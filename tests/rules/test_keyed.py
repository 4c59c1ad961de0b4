"""A keyed rule that fires often: no slot is left out unless its key is held."""

from datetime import datetime, timedelta, timezone

import pytest

from celery_delayq.contrib.rule_store import Stored
from celery_delayq.contrib.rules import writing
from celery_delayq.contrib.rules.rule import Plan
from celery_delayq.contrib.rules.timing import Timing
from tests.support.shards import each

SECOND = timedelta(seconds=1)
NOON = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)


@pytest.fixture
def rest(delayq, redis):
    """Seconds until the writer looks again, after it has looked at all rules."""

    def rest():
        for ahead in each("rules_next"):
            for name in redis.zrange(ahead, 0, -1):
                redis.zadd(ahead, {name: 0})
        return min(
            writing.write(delayq.services, shard) for shard in delayq.services.entries.shards
        )

    return rest


@pytest.fixture
def keyed(report):
    return report.s().set(delayq_key="k", delayq_unique_until="finished")


def test_the_writer_looks_again_when_the_only_run_is_due(delayq, keyed, rest):
    delayq.every("r", keyed, 2 * SECOND)
    assert rest() <= 2


def test_it_looks_at_a_held_key_when_the_slot_comes(delayq, keyed, report, rest):
    report.s(1).set(delayq_key="k").delay_for(3600)
    delayq.every("r", keyed, 3 * SECOND)
    assert rest() <= 3 < writing.AGAIN.total_seconds()


@pytest.mark.parametrize(("key", "run"), [("k", [False, True, True]), ("", [False, False, False])])
def test_a_slot_whose_key_has_just_come_free_was_not_missed(key, run):
    plan = Plan("{}", Timing("every 3 s"), "none", 0.0, (), key)
    rule = Stored("r", 0, {"home": "r"}, 1, NOON - 9 * SECOND, "-")

    slots, _ = writing._slots(rule, plan, NOON)

    assert [wanted for slot, wanted in slots if slot <= NOON] == run
