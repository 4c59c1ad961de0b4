"""``./tests/run deploys NAME``: run one of the trials."""

import sys

from tests.lab.trials import run

NAMES = ("rollout", "emptied")

if __name__ == "__main__":
    sys.exit(run("deploys", NAMES))
