"""The command that measures how long calls take while Redis hangs."""

import pytest

from tests.lab.faults import hung


@pytest.mark.parametrize(
    ("fault", "timeout", "least", "ends_by"),
    [(hung.WELL, 30, 0, ""), (hung.REFUSED, 1, 0, "!"), (hung.STOPPED, 1, 0.9, "!")],
)
def test_a_call_ends_in_its_time_and_by_an_error_where_redis_is_away(
    fault, timeout, least, ends_by
):
    took = hung.measured("`get`", fault, timeout)

    assert took.error == ends_by
    assert least <= took.seconds < hung.MOST


def test_every_row_of_the_table_is_one_that_is_measured():
    table = hung.README.read_text("utf-8").partition(hung.BEGIN)[2].partition(hung.END)[0]
    rows = [line.split(" | ")[0].strip("| ") for line in table.splitlines() if line[:1] == "|"]

    assert rows[2:] == [*hung.CALLS, *hung.WORKERS]
