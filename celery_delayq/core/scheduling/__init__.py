"""In: from a call to an entry of the store.

    one call:   request --> Celery's apply_async --> intercept --entry--> writing --> receipt
                                                         |
    a bulk:     request --> (the first two items) -------+--> prepared message
                  |                                                |
                  +---- other items: arguments filled in <---------+----> writing --> receipts

``options`` declares the options of a call. ``intercept`` decides once, for every message that
Celery makes, whether it is scheduled. ``writing`` writes the entries.
``operations/patches.py`` says whether a bulk's messages may be made of one another.
"""
