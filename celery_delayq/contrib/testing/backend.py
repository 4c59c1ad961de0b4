"""The result backend of an isolated app: Celery's in memory, asked more often."""

from __future__ import annotations

from typing import Any

from celery.backends.cache import CacheBackend

INTERVAL = 0.01  # seconds between two looks at a result that is waited for

URL = f"{__name__}:QuickBackend+memory://"


class QuickBackend(CacheBackend):
    """A test that waits for a worker beside it need not wait for half a second."""

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
