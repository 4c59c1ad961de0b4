"""Hold the README against the code: its examples run, and what it shows is what one sees."""
