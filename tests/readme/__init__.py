"""Hold the texts against the code: examples run, and what they show is what one sees."""
