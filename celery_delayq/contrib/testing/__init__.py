"""Isolates an app for the length of a test, so that you can test your own tasks.

    with isolated(app) as delayq:      the fixture `delayq` of the pytest plugin is this
        page_opened(7)
        [task] = delayq.scheduled()
        delayq.advance(minutes=30)
        [result] = delayq.run_due()    in this process; or, with delayq.worker(), in a real worker

    isolation --> store (fakeredis in this process, or a Redis with a prefix for this test)
              --> app   (its settings, connections and caches are set aside)
              --> clock (the scripts', the app's and this package's, all advanced alike)

    forbidding    refuses the stores of apps that are not isolated, if pytest's option says so

``celery_delayq.contrib.pytest`` has the plugin's fixtures, and imports this package when a test
requests one.
"""

from .isolation import isolated
from .runner import RanTask
from .tested import IsolatedDelayQ

__all__ = [
    "IsolatedDelayQ",
    "RanTask",
    "isolated",
]
