"""The lock is taken: a task that finds its account locked puts itself off by five seconds.

It frees the worker at once and does not count as a retry. While it waits, you can cancel it like
any other.
"""

from scenes.app import app


def lock_of(account):
    return app.backend.client.lock(f"account-{account}", timeout=60)


@app.task(bind=True, acks_late=True)
def bill(self, account, again=5):
    lock = lock_of(account)
    if not lock.acquire(blocking=False):
        raise self.defer(after=again)
    try:
        return f"account {account} is billed"
    finally:
        lock.release()
