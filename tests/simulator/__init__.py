"""Clients and scanners on a real Redis, with a clock and a network that a seed owns.

    decisions --> world --> actors: clients and scanners, the package's own Python, one at a time
                    |         |
                    |       network: requests and replies held, lost, doubled, late
                    |         v
                    +-----> server: the package's own scripts on a real Redis, at the world's time
                              |
                            judge: what was promised to whom, and what became of it

One seed is one history, to the byte. ``python -m tests.simulator`` runs it.
"""
