"""The Django app, whose label names the permissions."""

from __future__ import annotations

from django.apps import AppConfig


class DelayQConfig(AppConfig):
    """The app ``delayq``."""

    name = "celery_delayq.contrib.web.django"
    label = "delayq"
    verbose_name = "delayq"
    default_auto_field = "django.db.models.BigAutoField"
