"""The same app with celery-redis-plus, which adds valkey:// to kombu when it is imported."""

import celery_redis_plus  # noqa: F401

from tests.worker.tasks import app

__all__ = ["app"]
