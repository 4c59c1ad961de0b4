"""The tally of recurring runs counts what was lost and what was doubled."""

from tests.lab.recurring.tally import Tally, tally

MINUTES = [(60.02, None), (120.01, None), (180.03, None)]
FIVES = [(5.01 + 5 * number, None) for number in range(12)]


def test_each_minute_ran_once():
    assert tally(MINUTES, 60, 1, 239) == Tally(slots=3, once=3, lost=0, doubled=0, late=0)


def test_a_minute_that_did_not_run_is_lost_and_one_that_ran_twice_is_doubled():
    runs = [MINUTES[0], (61.0, None), MINUTES[2]]
    assert tally(runs, 60, 1, 239) == Tally(slots=3, once=1, lost=1, doubled=1, late=0)


def test_a_run_that_caught_up_is_late():
    runs = [MINUTES[0], (150.0, None), MINUTES[2]]
    assert tally(runs, 60, 1, 239) == Tally(slots=3, once=3, lost=0, doubled=0, late=1)


def test_a_message_that_says_its_slot_counts_for_that():
    runs = [(150.0, 60.0), (150.1, 120.0), (180.0, 180.0)]
    assert tally(runs, 60, 1, 239) == Tally(slots=3, once=3, lost=0, doubled=0, late=2)
    runs = [(31.0, 5.0 * number) for number in range(1, 7)]
    assert tally(runs, 5, 1, 32) == Tally(slots=6, once=6, lost=0, doubled=0, late=5)


def test_an_interval_without_slots_is_counted_by_its_gaps():
    assert tally(FIVES, 5, 1, 61) == Tally(slots=12, once=12, lost=0, doubled=0, late=None)
    left_out = FIVES[:4] + FIVES[8:]
    assert tally(left_out, 5, 1, 61) == Tally(slots=12, once=8, lost=4, doubled=0, late=None)


def test_two_schedulers_double_an_interval_whatever_their_phases():
    second = [(when + 2.6, None) for when, _ in FIVES[:4]]
    assert tally([*FIVES, *second], 5, 1, 61).doubled == 4
