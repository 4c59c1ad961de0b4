"""Claims that hold for every operation; each test runs over one table of operations."""
