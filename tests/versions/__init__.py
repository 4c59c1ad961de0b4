"""Two versions of the package on one store: how each treats the other's data."""
