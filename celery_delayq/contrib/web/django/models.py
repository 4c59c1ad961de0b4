"""The model that carries the permissions; it has no table."""

from __future__ import annotations

from django.db import models


class ScheduledTask(models.Model):
    """A scheduled task, for Django's permissions and its admin; tasks are in Redis."""

    class Meta:  # noqa: D106
        managed = False
        default_permissions = ("view", "change")
        verbose_name = "scheduled task"
