"""Two versions of the package at once on one store: what each does to what the other wrote."""
