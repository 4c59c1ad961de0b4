"""Connections to a Redis, and facts about it; nothing here knows what celery_delayq stores there.

    Server: an Endpoint, or a leaf's group           address and login
            |
    Pool ---> Connection                             one command at a time; errors translated
            |
    risks                                           what it reports, and how it may lose tasks

Import each from its own file.
"""
