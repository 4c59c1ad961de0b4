"""One Celery message: captured, split into template and rest, routed, decoded.

    Celery's sender --> outgoing --> record (template and rest) -----> store
                           |
                           +-------> route: list, or exchange and key

    store --> body (its arguments, for readers)
          --> route (for publishers)

Only this room and ``handover`` use kombu's internals. ``broker`` describes the app's broker,
``canvas`` makes one message from a workflow, ``native_delay`` undoes Celery's delay of an ``eta``
on quorum queues, ``headers`` names the headers that this package adds, ``identity`` distinguishes
messages of the same task.
"""
