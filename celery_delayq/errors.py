"""The errors of this package, which all derive from ``DelayQError``."""

from .core import errors as _errors
from .core.errors import *  # noqa: F403

# Pickles and result backends name a class by its module. This one stays if the classes move.
for _error in tuple(vars(_errors).values()):
    if isinstance(_error, type) and issubclass(_error, _errors.DelayQError):
        _error.__module__ = __name__

del _error
