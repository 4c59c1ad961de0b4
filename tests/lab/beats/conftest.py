"""./tests/run beats makes the environment with both schedulers, and passes its path here."""

import os

collect_ignore_glob = [] if "DELAYQ_BEATS" in os.environ else ["test_*.py"]
