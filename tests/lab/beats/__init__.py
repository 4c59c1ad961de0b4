"""The real celery-redbeat and django-celery-beat write entries, and `rules import` reads them."""
