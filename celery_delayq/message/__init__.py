"""One Celery message: captured, cut into template and rest, routed, decoded.

    Celery's sender --> outgoing --> record (template and rest) -----> store
                           |
                           +-------> route: list, or exchange and key

    store --> body (its arguments, for who reads)
          --> route (for who publishes)

With the hand-over, the only room that knows kombu's insides. ``broker`` says what the app's broker
is, ``canvas`` makes one message of a workflow, ``native_delay`` undoes what Celery does to an eta
on quorum queues, ``headers`` names what this package adds, ``identity`` tells one message from
another of the same task.
"""
