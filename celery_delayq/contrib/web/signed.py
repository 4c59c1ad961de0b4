"""Signs the URL of a step, so that no link from elsewhere can claim what did not happen.

A step's URL has its figures: "999,999 tasks were cancelled". They count only with a code that is
made of them and of what only these pages' processes know: the store's random name, and its URL.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from werkzeug.exceptions import BadRequest

from ...core.store import selection_scan
from .visit import Visit

_FORGED = "this link's figures are not those of a step on these pages; nothing was done"
_CODE = "code"


def signed_url(visit: Visit, view: str, **values: Any) -> str:
    """Return the URL of a view, with a code of its values."""
    flat = [
        (name, str(each))
        for name, value in values.items()
        for each in (value if isinstance(value, (list, tuple)) else [value])
        if each not in ("", None)
    ]
    return visit.url(view, **values, **{_CODE: _code(visit, view, flat)})


def check_signed(visit: Visit) -> None:
    """Refuse a URL whose values are not those that were signed.

    Raises:
        BadRequest: it has no code, or that of other values.
    """
    args = visit.request.args
    flat = [(name, text) for name, text in args.items(multi=True) if name != _CODE and text]
    if not hmac.compare_digest(
        args.get(_CODE, "").encode(), _code(visit, visit.view, flat).encode()
    ):
        raise BadRequest(_FORGED)


def _code(visit: Visit, view: str, values: Iterable[tuple[str, str]]) -> str:
    services = visit.delayq.services
    name, _ = selection_scan.start(services.entries.shards[0])
    secret = f"{name} {services.settings.url}".encode()
    return hmac.new(secret, repr((view, sorted(values))).encode(), sha256).hexdigest()[:32]
