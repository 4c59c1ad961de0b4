"""One Celery message: captured, split into template and rest, routed, decoded.

    Celery's sender --> outgoing --> record (template and rest) -----> store
                           |
                           +-------> route: list, or exchange and key

    store --> body (its arguments, for readers)
          --> outgoing (its route, for publishers)

``broker`` describes the app's broker, and undoes Celery's delay of an ``eta`` on quorum queues.
``headers`` names the headers that this package adds, and tells messages of the same task apart.
Only this room and ``handover`` use kombu's internals.
"""
