"""The URLs to include, under any path."""

from __future__ import annotations

from django.urls import re_path

from .views import page

app_name = "delayq"
urlpatterns = [re_path(r"^(?P<path>.*)$", page, name="page")]
