"""The project of a user, in a folder of its own, for commands in real processes."""

import os
import sys

PROJECT = """\
from celery import Celery
from celery_delayq import DelayQ
app = Celery("shop", broker={url!r})
delayq = DelayQ(app)
"""


def shop(folder, url):
    """Write ``shop.py`` there; returns how a process is started in it."""
    (folder / "shop.py").write_text(PROJECT.format(url=url), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return {"cwd": folder, "env": environment, "text": True}
