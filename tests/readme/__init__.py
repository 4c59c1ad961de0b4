"""Hold the READMEs against the code: examples run, and what they show is what one sees."""
