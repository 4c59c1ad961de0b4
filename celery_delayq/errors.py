"""The errors of this package, which all derive from ``DelayQError``."""

from .core.errors import *  # noqa: F403
