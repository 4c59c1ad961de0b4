"""``./tests/run mutants``: one small change of the package at a time, and which test fails.

sites.py     the places where a file can be changed, and how
__main__.py  draws a sample by a seed, runs the tests against each, and reports the survivors
"""
