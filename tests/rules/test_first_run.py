"""Where the runs of a rule begin, and by how much they are later than their slots."""

from datetime import timedelta

from tests.rules import support
from tests.rules.support import HOUR, runs, set_fields, wake, write

PHASE = timedelta(minutes=25)


def minutes(moments):
    return {moment.minute for moment in moments}


def test_the_offset_in_its_row_is_the_one_that_counts(delayq, report, redis):
    delayq.every("r", report.s(7), HOUR)
    set_fields(redis, "r", offset=lambda _: str(PHASE // timedelta(milliseconds=1)))
    write(delayq)
    assert minutes(runs(delayq)) == minutes(delayq.rule("r").next) == {25}
    # To say the same again, or to go through a dump, keeps it.
    delayq.every("r", report.s(7), HOUR)
    lines = [*delayq.dump()]
    redis.flushdb()
    delayq.load(lines)
    wake(redis)
    write(delayq)
    assert minutes(runs(delayq)) == minutes(delayq.rule("r").next) == {25}


def test_a_new_rule_with_jitter_runs_at_a_slot_whose_run_is_still_to_come(delayq, report):
    for name in "abcdefghijklmnopqrst":  # each has another delay
        rule = support.every(delayq, name, report.s(7), HOUR, jitter=3600)
        assert runs(delayq, name) == [rule.next[0]]
