"""A link to the pages among the models of Django's admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.shortcuts import redirect
from django.urls import NoReverseMatch, reverse

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

    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:  # noqa: ARG002
        return redirect(PAGE, path="")


def _is_included() -> bool:
    try:
        reverse(PAGE, kwargs={"path": ""})
    except NoReverseMatch:
        return False
    return True
