"""What ``DelayQ(app)`` adds to Celery."""
