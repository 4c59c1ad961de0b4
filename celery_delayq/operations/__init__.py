"""Meanwhile: what one can do with a task that waits."""
