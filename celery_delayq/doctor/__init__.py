"""Whether all is well with an app's store and broker, line by line.

    examine   server -> rights -> clocks -> scanners -> pauses -> broker

Nothing here prints: the command does. What a worker warns of at its start is judged in
``servers/risks.py``, for both.
"""
