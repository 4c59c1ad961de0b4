"""Look through the store for what does not fit together."""

from __future__ import annotations

from collections.abc import Iterator

from ..services import Services
from ..store import Finding


def check(services: Services) -> Iterator[Finding]:
    """What does not fit, read slice by slice while one iterates; see :meth:`DelayQ.check`."""
    return services.entries.check()
