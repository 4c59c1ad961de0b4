"""Out: from due to the queue."""
