"""One small driver for each peer, run in an environment of its own; see ``driver.py``."""
