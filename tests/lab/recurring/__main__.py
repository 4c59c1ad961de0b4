"""``./tests/run recurring NAME``: run one of the trials."""

import sys

from tests.lab.trials import run

NAMES = ("kills", "beside", "load", "rest", "django", "clocks", "leaving")

if __name__ == "__main__":
    sys.exit(run("recurring", NAMES))
