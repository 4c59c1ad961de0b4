"""Whether all is well with an app's store and broker; and what its Redis takes of this work.

    measure   round trip -> schedule, cancel -> schedule in bulk -> weigh what waits -> hand over

Nothing here prints: the command does.
"""
