"""The URLs to include, under any path.

The one view: Django's request in, Django's response out.
"""

from __future__ import annotations

from functools import cache, partial
from io import BytesIO
from typing import Any

from celery import current_app
from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.http import HttpResponse
from django.urls import re_path
from django.views.decorators.csrf import csrf_exempt
from werkzeug.wrappers import Request

from ....core.services import services_of
from ..app import Pages

VIEW, CHANGE = "delayq.view_scheduledtask", "delayq.change_scheduledtask"


# The pages check the origin of a form by themselves, see `guard.py`, and have no cookie.
@csrf_exempt
def page(request: Any, path: str) -> Any:
    """Answer a request to the pages; users without a login are sent to it."""
    user = getattr(request, "user", None)
    if user is not None and not user.is_authenticated:
        return redirect_to_login(request.get_full_path())
    name = getattr(user, "get_username", str)
    response = _pages().respond(_for_werkzeug(request, path), partial(_access, user), name)
    answer = HttpResponse(response.get_data(), status=response.status_code)
    for name, value in response.headers.items():
        answer[name] = value
    return answer


def _access(user: Any) -> str | None:
    if user is None:  # a project without Django's authentication
        return None
    if user.has_perm(CHANGE):
        return "write"
    return "read" if user.has_perm(VIEW) else None


@cache
def _pages() -> Pages:
    app: Any = current_app._get_current_object()
    services_of(app)  # raises if it has no DelayQ
    return Pages(
        app.delayq,
        hides=bool(getattr(settings, "DELAYQ_HIDE_ARGUMENTS", False)),
        trusted=settings.CSRF_TRUSTED_ORIGINS,
    )


def _for_werkzeug(request: Any, path: str) -> Request:
    body = request.body
    environ = {
        **request.META,
        # As Django sees them, behind the proxies that it is set up for.
        "HTTP_HOST": request.get_host(),
        "wsgi.url_scheme": request.scheme,
        "SCRIPT_NAME": _as_wsgi(request.path.removesuffix(path).rstrip("/")),
        "PATH_INFO": _as_wsgi(f"/{path}"),
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": BytesIO(body),
    }
    return Request(environ)


def _as_wsgi(text: str) -> str:
    return text.encode().decode("latin1")


app_name = "delayq"
urlpatterns = [re_path(r"^(?P<path>.*)$", page, name="page")]
