"""One reminder, twice: on a plain Celery app with ``countdown``, and on one with celery_delayq."""
