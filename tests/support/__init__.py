"""Real processes of the suite's own, and the few ways in which a test may wait for them."""
