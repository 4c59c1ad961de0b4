"""Waking, searched exhaustively; and habits of scanners that leave something due to wait."""

import pytest

from tests.protocol.waking import Habits, search

WRONG = [
    (Habits(safety=False), "waits for ever"),
    (Habits(all_shards=False), "waits for ever"),
    (Habits(keeps_mail=False), "late without a fault"),
]


def test_nothing_due_waits_longer_than_the_safety_interval_nor_late_without_a_fault():
    found = search(Habits())
    assert found.way == []
    assert found.worlds > 10_000


@pytest.mark.parametrize(("habits", "wrong"), WRONG)
def test_a_scanner_with_a_wrong_habit_is_found_out(habits, wrong):
    assert search(habits, until=wrong).wrong == wrong


def test_the_safety_interval_is_for_a_message_that_nobody_hears():
    assert search(Habits(safety=False)).way == [
        "0 looks at shard 0",
        "0 looks at shard 1",
        "1 dies",
        "scheduled in shard 0, due in 0, the message is lost",
        *["time passes"] * 4,
    ]
