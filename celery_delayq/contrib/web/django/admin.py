"""A link to the pages among the models of Django's admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.shortcuts import redirect
from django.urls import NoReverseMatch, path, re_path, reverse

from .models import ScheduledTask

PAGE = "delayq:page"


@admin.register(ScheduledTask)
class ScheduledTaskAdmin(admin.ModelAdmin):
    """Leads to the pages; shown to users who may look, if the URLs are included."""

    def has_module_permission(self, request: Any) -> bool:
        return _is_included() and bool(super().has_module_permission(request))

    def has_add_permission(self, request: Any) -> bool:  # noqa: ARG002 - Django's own
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def get_urls(self) -> list[Any]:
        """Lead every page that an admin has to the pages: there is no row to change or delete."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_changelist"
        leads = self.admin_site.admin_view(lambda _, **__: redirect(PAGE, path=""))
        return [path("", leads, name=name), re_path(".+", leads)]


def _is_included() -> bool:
    try:
        reverse(PAGE, kwargs={"path": ""})
    except NoReverseMatch:
        return False
    return True
