"""The command that measures how long things take while Redis hangs: it measures, and tells."""

import pytest

from tests.faults import hung


@pytest.mark.parametrize(
    ("fault", "ends_by"), [(hung.WELL, ""), (hung.REFUSED, "!"), (hung.STOPPED, "!")]
)
def test_a_call_ends_in_its_time_and_by_an_error_where_redis_is_away(fault, ends_by):
    took = hung.measured("`get`", fault, 1)

    assert took.error == ends_by
    assert took.seconds < hung.MOST
    assert (took.seconds >= 0.9) is (fault == hung.STOPPED)


def test_every_row_of_the_table_is_one_that_is_measured():
    table = hung.README.read_text("utf-8").partition(hung.BEGIN)[2].partition(hung.END)[0]
    rows = [line.split(" | ")[0].strip("| ") for line in table.splitlines() if line[:1] == "|"]

    assert rows[2:] == [*hung.CALLS, *hung.WORKERS]
