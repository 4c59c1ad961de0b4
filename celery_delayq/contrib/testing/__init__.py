"""What users test their own tasks with: an app on its own for the length of a test.

    with isolated(app) as delayq:      the fixture `delayq` of the pytest plugin is this
        page_opened(7)
        [task] = delayq.scheduled()
        delayq.advance(minutes=30)
        [result] = delayq.run_due()    in this process; or, with delayq.worker(), in a real worker

    isolation --> store (fakeredis in this process, or a Redis with a prefix of the test's own)
              --> app   (its settings, connections and caches are set aside)
              --> clock (the scripts', the app's and this package's are ahead by what was advanced)

The plugin's fixtures are in ``celery_delayq.contrib.pytest``, which imports none of this until a
test asks for one.
"""

from .isolation import isolated
from .runner import RanTask
from .tested import IsolatedDelayQ

__all__ = [
    "IsolatedDelayQ",
    "RanTask",
    "isolated",
]
