"""How a test makes :mod:`tests.worker.ending` end a thread."""

RAISE = "raise"  # a list of errors, for its receiver
AFTER = "after"  # a list of the ids that its other receiver heard of
AT_START = "DELAYQ_TEST_AT_START"  # a variable: the error of its log
