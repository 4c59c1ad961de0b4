"""``./tests/run mutants``: change the package in one small place at a time, and see which test fails.

sites.py     the places where a file can be changed, and how
__main__.py  draws a sample by a seed, runs the tests against each, and reports the survivors
"""
