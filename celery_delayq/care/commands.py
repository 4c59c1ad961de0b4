"""The commands ``check``, ``doctor``, ``dump`` and ``load``."""

from .command_check import check
from .command_doctor import doctor
from .command_dump import dump, load

__all__ = ["check", "doctor", "dump", "load"]
