"""In: from a call to an entry of the store.

    one call:   request --> Celery's apply_async --> intercept --entry--> writing --> receipt
                                                         |
    a bulk:     request --> (the first two items) -------+--> prepared message
                  |                                                |
                  +---- other items: arguments filled in <---------+----> writing --> receipts

``deciding`` decides once, for every message that Celery makes, whether it is scheduled.
``operations/patches.py`` says whether a bulk's messages may be made of one another.
"""
