"""The limits for a browser: the hosts, the origins of forms, and the content of a page.

A foreign page can send the user's browser here. Three checks stop it, without any state:

- the ``Host`` is a known one, so a foreign name that resolves to loopback is refused;
- a form that changes something comes from these pages: ``Sec-Fetch-Site``, or else ``Origin``;
- no page can put these pages into a frame.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from werkzeug.exceptions import Forbidden, MisdirectedRequest
from werkzeug.wrappers import Request, Response

SAFE = ("GET", "HEAD")

_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Not "no-referrer": browsers then send "Origin: null" with these pages' own forms.
    "Referrer-Policy": "same-origin",
}
_FOREIGN = (
    "this form was not sent from these pages, so nothing was changed; if a proxy changes the Host, "
    "name its address as a trusted origin"
)


def check_host(request: Request, hosts: Iterable[str]) -> None:
    """Refuse a request to a host that is not among *hosts*, if there are any.

    Raises:
        MisdirectedRequest: its ``Host`` is another one.
    """
    known = {host.lower() for host in hosts}
    if known and _name_in(request.headers.get("Host", "")) not in known:
        raise MisdirectedRequest(f"these pages answer only as {', '.join(sorted(known))}")


def check_origin(request: Request, trusted: Iterable[str]) -> None:
    """Refuse a request that changes something, unless it comes from these pages.

    Raises:
        Forbidden: another site sent it, or the browser does not say which.
    """
    if request.method in SAFE:
        return
    origin, site = request.headers.get("Origin", ""), request.headers.get("Sec-Fetch-Site")
    if origin in {allowed.rstrip("/") for allowed in trusted}:
        return
    own = f"{request.scheme}://{request.headers.get('Host', '')}"
    # Browsers send no Sec-Fetch-Site over plain http, except to the machine itself.
    if not (origin == own if site is None else site == "same-origin"):
        raise Forbidden(_FOREIGN)


def is_led_from_here(request: Request) -> bool:
    """Return whether a link or a form of these pages led to this page.

    The script presses no button on a page to which a foreign link led.
    """
    site, referrer = request.headers.get("Sec-Fetch-Site"), request.headers.get("Referer", "")
    if site is not None:
        return site == "same-origin"
    return referrer.startswith(f"{request.scheme}://{request.headers.get('Host', '')}/")


def secure(response: Response) -> Response:
    """Add the headers that tell a browser what the page may do."""
    response.headers.update(_HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
    return response


def _name_in(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
