"""The errors of this package, which all derive from ``DelayQError``."""

from .core.errors import *  # noqa: F403
from .core.errors import DelayQError

# Pickles and result backends name a class by its module. This one stays if the classes move.
for _error in tuple(vars().values()):
    if isinstance(_error, type) and issubclass(_error, DelayQError):
        _error.__module__ = __name__

del _error
