"""Recurring rules in real processes: trials that take minutes. None of them is in the suite.

./tests/run recurring kills    workers are killed all the time; then the books of each slot
./tests/run recurring beside   this package, celery beat and celery-redbeat under the same faults
./tests/run recurring load     thousands of rules: lateness, the share of Redis, memory
./tests/run recurring rest     a thousand writers that have nothing to do
./tests/run recurring django   this package and celery beat in a Django project: rows and errors
"""
