"""A page in the browser for scheduled tasks: look, cancel, move, edit.

    wsgi(delayq, allow=...)   in Flask, FastAPI, any server --+
    urls of web.django        in a Django project ------------+--> Pages --> guard --> a view
    celery delayq web         on loopback, from a terminal ---+                         |
                                      operations, through DelayQ <--- words, templates -+

A view is a function from a visit to a response. The pages keep nothing between two requests: no
session, no cookie; all that a view needs is in its URL, signed with a secret that the store keeps.
So any process can serve any request. The pages need the extra ``celery_delayq[web]``; modules are
imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .telling import page_changed

if TYPE_CHECKING:
    from .app import wsgi

__all__ = ["page_changed", "wsgi"]


def __getattr__(name: str) -> Any:
    # The command line imports this package even if Werkzeug is not installed.
    if name == "wsgi":
        from .app import wsgi

        return wsgi
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
