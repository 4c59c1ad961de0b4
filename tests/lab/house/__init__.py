"""``python -m tests.lab.house``: the plan of the deeper modules, its check, and its moves.

house.txt    which modules of today become one, and the decision that it hides; the layers
plan.py      reads it
sources.py   what the modules of today import, and which names they define
checks.py    the package as it is and as planned: circles, layers, chains, roads, names that clash
scopes.py    which scope a name belongs to
moves.py     merges modules, and mends whatever names them
heads.txt    the docstrings of the merged modules
patches      what a step needs beside the moves
"""
