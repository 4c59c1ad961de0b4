"""The care of a store: whether all is well, what does not fit, and how it moves.

    doctor     a question for each thing that has to be right
    mending    check and repair
    dumping ---> lines ---> loading

It is imported when it is used: by its commands ``doctor``, ``check``, ``dump`` and ``load``, and by
the methods of ``DelayQ`` that do the same.
"""

from .dumping import dump
from .loading import load
from .mending import check, repair

__all__ = ["check", "dump", "load", "repair"]
