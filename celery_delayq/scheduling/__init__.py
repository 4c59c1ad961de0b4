"""In: from a call to an entry of the store.

    one call:   calls --request--> Celery's apply_async --> sender --entry--> writing --> receipt
                                                              |
    a bulk:     bulk --request--> (the first two items) ------+--> prepared message
                  |                                                       |
                  +---- the other items: arguments filled in <------------+--> writing --> receipts

``decision`` is made once, for every message that Celery makes: whether it is scheduled.
``delivered`` makes entries of messages that a broker delivered.
``untouched`` says whether a bulk's messages may be made of one another.
"""
