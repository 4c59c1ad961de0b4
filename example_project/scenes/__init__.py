"""Six common uses of delayed tasks, each a module to copy."""
