"""An app with a DelayQ, to which the scanner was also added by hand."""

from celery_delayq import ScannerStep
from tests.worker.tasks import app

app.steps["worker"].add(ScannerStep)
