"""./tests/run types makes the environment with the checkers, and passes its path here."""

import os

collect_ignore_glob = [] if "DELAYQ_TYPES" in os.environ else ["test_*.py"]
