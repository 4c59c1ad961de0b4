"""What goes with other packages; nothing here is imported unless it is asked for."""
