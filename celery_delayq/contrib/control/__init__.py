"""Remote control: ``revoke`` and ``inspect`` reach the tasks that wait in the store.

    app.control ------> remote    ``revoke`` cancels waiting tasks
    a worker's panel -> remote    so do its commands; ``scheduled``, ``query_task`` show them
                     -> panel     ``inspect delayq``

Workers are not told to revoke tasks that never reached them.
"""

from .remote import in_worker, set_up

__all__ = ["in_worker", "on_command_line", "set_up"]


def on_command_line() -> None:
    """Let Celery's command line know the remote commands that it can ask workers for."""
    from . import panel  # noqa: F401
