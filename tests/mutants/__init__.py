"""``./tests/run mutants``: make one small change to the package at a time; see which test fails.

sites.py     the places at which a file can be changed, and how
__main__.py  draws a sample by a seed, runs the tests against each, and reports the survivors
"""
