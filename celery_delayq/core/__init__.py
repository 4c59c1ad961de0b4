"""What schedules, finds, moves, cancels and delivers a task; it imports nothing of the rest."""
