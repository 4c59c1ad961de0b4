"""The pages as a WSGI application, to mount in a site that has a login."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from werkzeug.wrappers import Request

from ...core.services import HasServices
from .app import Pages

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


def wsgi(
    delayq: HasServices,
    *,
    allow: Callable[[Request], str | None],
    user: Callable[[Request], str] | None = None,
    hide_arguments: bool = False,
    trusted_origins: Iterable[str] = (),
    hosts: Iterable[str] = (),
) -> WSGIApplication:
    """Return the pages as a WSGI application, which works under any path.

    Args:
        delayq: The app's ``DelayQ``.
        allow: Called with each request, a ``werkzeug.Request``. Returns ``"write"`` or ``"read"``;
            anything else closes the pages to this request. It may raise Werkzeug's exceptions, such
            as ``abort(401)``.
        user: Returns the user's name for the log; by default ``REMOTE_USER``, or the address.
        hide_arguments: Never show the tasks' arguments.
        trusted_origins: Other origins whose forms may change tasks, such as
            ``https://admin.example.com``: for proxies that change the ``Host``, and browsers that
            send no ``Sec-Fetch-Site``.
        hosts: The names under which the pages can be reached; by default any.
    """
    pages = Pages(delayq, hides=hide_arguments, trusted=trusted_origins, hosts=hosts)
    name_of = user or _name_of

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(environ)
        response = pages.respond(request, partial(allow, request), partial(name_of, request))
        return response(environ, start_response)

    return application


def _name_of(request: Request) -> str:
    return request.remote_user or request.remote_addr or "unknown"
