"""The project of worker tests, in a worker for which half a minute is a moment."""

import os

from celery_delayq.core.handover import relay, scanner
from celery_delayq.core.servers import pool
from celery_delayq.core.store import wakeup
from tests.lab.hosted.scaled_times import MOMENT

pool.IDLE = wakeup.PING_AFTER = relay.IDLE = scanner.INTERVAL = float(os.environ[MOMENT])

from tests.worker.tasks import app  # noqa: E402, F401
