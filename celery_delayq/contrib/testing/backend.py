"""The result backend of an isolated app: Celery's in memory, polled more often."""

from __future__ import annotations

from typing import Any

from celery.backends.cache import CacheBackend

INTERVAL = 0.01  # seconds between two polls of a result

URL = f"{__name__}:QuickBackend+memory://"


class QuickBackend(CacheBackend):
    """Polls often, so that a test with a worker does not wait half a second for a result."""

    def wait_for(
        self,
        task_id: str,
        timeout: float | None = None,
        interval: float = INTERVAL,
        *rest: Any,
        **given: Any,
    ) -> Any:
        return super().wait_for(task_id, timeout, min(interval, INTERVAL), *rest, **given)

    def get_many(
        self,
        task_ids: Any,
        timeout: float | None = None,
        interval: float | None = None,
        *rest: Any,
        **given: Any,
    ) -> Any:
        return super().get_many(
            task_ids, timeout, min(interval or INTERVAL, INTERVAL), *rest, **given
        )
