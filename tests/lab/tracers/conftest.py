"""./tests/run tracers makes the environment with the tracers, and passes its path here."""

import os

collect_ignore_glob = [] if "DELAYQ_TRACERS" in os.environ else ["test_*.py"]
