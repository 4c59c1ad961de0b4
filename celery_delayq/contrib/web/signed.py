"""Signs URLs, so that no link from elsewhere can claim what did not happen.

A URL has the figures of a step, or the answer to a change: "999,999 tasks were cancelled". They
count only with a signature of all that the URL says, by what only these pages' processes know: the
store's random name, and its URL.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from werkzeug.exceptions import BadRequest

from ...core.store import selection
from .visit import Visit

_FORGED = "this link's figures are not those of a step on these pages; nothing was done"
_SIGN = "sign"


def signed_url(visit: Visit, view: str, **values: Any) -> str:
    """Return the URL of a view, with a signature of its values."""
    url = visit.url(view, **values)
    pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    joint = "&" if pairs else "?"
    return f"{url}{joint}{urlencode({_SIGN: _signature(visit, view, pairs)})}"


def check_signed(visit: Visit) -> None:
    """Refuse a URL whose values are not those that were signed.

    Raises:
        BadRequest: it has no signature, or that of other values.
    """
    args = visit.request.args
    pairs = [pair for pair in args.items(multi=True) if pair[0] != _SIGN]
    right = _signature(visit, visit.view, pairs)
    if not hmac.compare_digest(args.get(_SIGN, "").encode(), right.encode()):
        raise BadRequest(_FORGED)


def _signature(visit: Visit, view: str, pairs: Iterable[tuple[str, str]]) -> str:
    services = visit.delayq.services
    name, _ = selection.start(services.entries.shards[0])
    secret = f"{name} {services.settings.url}".encode()
    return hmac.new(secret, repr((view, sorted(pairs))).encode(), sha256).hexdigest()[:32]
