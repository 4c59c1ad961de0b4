"""Names that worker processes and measurements share."""

STARTS = "benchmark:starts"  # the list that bench.stamp reports to
