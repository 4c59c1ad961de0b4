"""Clients, scanners and workers on a real Redis, with a clock and a network that a seed owns.

    decisions --> world --> actors: clients, scanners, workers; the package's own Python, in turns
                    |         |   ^
                    |         |   inbox: messages of others, given to workers, and given again
                    |       network: requests and replies held, lost, doubled, late
                    |         v
                    +-----> server: the package's own scripts on a real Redis, at the world's time
                              |
                            judge: what was promised to whom, and what became of it

What it knows of the package stands in `driver`, and nowhere else. One seed is one history, to the
byte. ``python -m tests.simulator`` runs it.
"""
