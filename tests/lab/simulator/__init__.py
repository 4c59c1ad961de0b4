"""Clients, scanners and workers on a real Redis, with a clock and a network that a seed owns.

    decisions --> world --> actors: clients, scanners, workers; the package's own Python, in turns
                    |         |   ^
                    |         |   inbox: messages of others, delivered and redelivered to workers
                    |       network: requests and replies held, lost, doubled, late
                    |         v
                    +-----> server: the package's own scripts on a real Redis, at the world's time
                              |
                            judge: the promises to each caller, and whether they were kept

Only `driver`, and `rules_driver` beside it, know the package. The same seed always gives the same
history, byte by byte. ``python -m tests.lab.simulator`` runs it.
"""
