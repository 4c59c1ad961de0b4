"""Six things that people want tasks to wait for, each a module to copy."""
