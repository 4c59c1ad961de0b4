"""Cancel what carries a stamp, as Celery's ``revoke_by_stamped_headers`` has workers drop it.

    all that waits --a page at a time--> read --> stamps match --> cancelled, as by any selection

Every entry is read, a few dozen in a step; of those that share a template one is looked into.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kombu.utils.json import loads

from ..errors import InvalidOption
from ..message import canvas
from ..message.body import body_of
from ..services import Services
from ..store import Chosen, Entries, Met
from .count import Count
from .selection import Selection

Headers = Mapping[str, Any]

_EXPECTED = "a mapping of headers to values, or texts as header=value"


def cancel_stamped(services: Services, headers: Any) -> Count:
    """Cancel what waits and carries one of these stamps.

    A canvas is cancelled where each of its tasks does; of another one, workers drop the parts.

    Args:
        services: Of the app.
        headers: Each with a value, or a list of such; or texts, as the command line has them.

    Returns:
        How many were cancelled; see :meth:`Selection.cancel`.

    Raises:
        InvalidOption: they are neither.
        StoreError: as there.
    """
    return _Stamped(services, _read(headers)).cancel()


class _Stamped(Selection):
    """All that carries one of these stamps."""

    def __init__(self, services: Services, headers: Headers) -> None:
        super().__init__(services, Chosen())
        self._headers = headers
        self._known: dict[bytes, bool] = {}  # name of a template -> whether it has such a stamp

    def _pages(self) -> Iterator[tuple[int, Entries, list[bytes]]]:
        for shard, entries, page in super()._pages():
            met = entries.sieve.peek(self._chosen, page, reads=True)
            yield shard, entries, [one.member for one in met if self._is_meant(one)]

    def _is_meant(self, met: Met) -> bool:
        record = met.record
        if record is None:
            return False
        name = record.name
        if name is not None and name in self._known:
            return self._known[name]
        try:
            envelope = loads(record.message(met.member[6:], met.template))
            said = envelope["headers"]
            if said.get("task") == canvas.LAUNCH:
                return self._means_canvas(envelope)
            meant = matches(self._headers, said.get("stamped_headers"), said.get("stamps"))
        except Exception:  # what is not a task of Celery's fails in many ways, and has no stamps
            return False
        if name is not None:
            self._known[name] = meant
        return meant

    def _means_canvas(self, envelope: dict[str, Any]) -> bool:
        body = body_of(envelope, self._services.app.conf.accept_content)
        options = [one.get("options") or {} for one in canvas.tasks_of(body[0][0])]
        return bool(options) and all(
            matches(self._headers, one.get("stamped_headers"), one) for one in options
        )


def matches(headers: Headers, stamped: Any, stamps: Any) -> bool:
    """Whether a task with these stamps is meant, as ``celery.worker.request`` decides it."""
    return any(
        value in _listed(headers[name])
        for name in stamped or ()
        if name in headers
        for value in _listed((stamps or {}).get(name))
    )


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]


def _read(headers: Any) -> Headers:
    if isinstance(headers, Mapping):
        return headers
    texts = _listed(headers)
    if not texts or not all(isinstance(one, str) and "=" in one for one in texts):
        raise InvalidOption("headers", headers, _EXPECTED)
    return dict(one.split("=")[:2] for one in texts)  # as a worker reads them
