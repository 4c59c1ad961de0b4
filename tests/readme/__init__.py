"""Check the docs against the code: examples run, and their output is the real output."""
