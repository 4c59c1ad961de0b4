"""Lists the last things that happened to tasks.

    scripts --> the store's list of events --> newest --> DelayQ.history, ``celery delayq history``

Scripts write the list if ``delayq_history``, the number of events to keep, is set.
"""
