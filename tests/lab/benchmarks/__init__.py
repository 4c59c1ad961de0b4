"""The performance of this package, its peers and the raw limits, measured in one run.

    ./tests/run benchmarks [names...] [--rounds N] [--quick] [--json FILE] [--plots DIR]

    measures/  one module for each measurement, with one function: measure(lab) -> figures
    peers/     one small driver for each peer, run in an environment of its own
    goals.py   every line of the table, and the goal beside it

Nothing here is a test: pytest collects none of it, and no test depends on a time.
"""
