"""When the results of Celery's Redis backend may end."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_collector() -> Iterator[None]:
    """Suspend garbage collection in this block.

    With Celery 5.4, a result unsubscribes as it ends. If the collector ends it while redis-py is
    sending for another one, it waits for the lock that this very thread holds, which is not
    reentrant in redis-py 5.3 (celery/celery#10477). pytest-timeout cannot end that:
    ``__del__`` swallows the exception of its signal.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
