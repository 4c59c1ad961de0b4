"""What the store's Redis takes of this package's work, measured on scratch keys of its own.

    round trip -> schedule, cancel -> schedule in bulk -> weigh what waits -> hand over

Nothing here prints: the command does.
"""
