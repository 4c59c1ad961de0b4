"""In: from a call to an entry of the store.

    one call:   calls --request--> Celery's apply_async --> sender --entry--> writing --> receipt
                                                              |
    a bulk:     bulk --request--> (the first two items) ------+--> prepared message
                  |                                                       |
                  +---- the other items: arguments filled in <------------+--> writing --> receipts

``sender`` decides, once and for every message that Celery sends, whether it is scheduled.
``untouched`` says whether a bulk's messages may be made of one another.
"""
