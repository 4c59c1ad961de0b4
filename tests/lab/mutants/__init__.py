"""``./tests/run mutants``: make one small change to the package at a time; see which test fails.

sites.py     the places at which a file can be changed, and how
copies.py    copies of the tree, in which the tests run
reached.py   a pytest plugin: which functions and scripts each test reaches
chosen.py    the tests that can notice a change, in the order in which they run; a module's own
known.py     what earlier runs found, as long as it holds
report.py    the changes that nobody notices, and the test functions that notice none
__main__.py  draws places by a seed, and runs the tests against each change
"""
