"""Whether all is well with an app's store and broker, line by line; and what its Redis can do.

    examine   server -> rights -> clocks -> slow -> scanners -> pauses -> broker -> workers' clocks
    measure   round trip -> schedule, cancel -> schedule in bulk -> weigh -> hand over

Nothing here prints: the command does. What a worker warns of at its start is judged in
``servers/risks.py``, for both.
"""
