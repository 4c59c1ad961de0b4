"""What must hold of every operation, each claim over one table of them."""
