"""Drops duplicates: relayed tasks of which another copy has reached a worker before.

    a worker's consumer --> GuardingStep --> checks each message before its task is accepted

The setting ``delayq_once`` turns it on. ``store.copies`` has the records on which it relies.
"""
