"""An app with a DelayQ, to which somebody added the scanner once more by hand."""

from celery_delayq import ScannerStep
from tests.worker.tasks import app

app.steps["worker"].add(ScannerStep)
