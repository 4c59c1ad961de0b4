"""The latest ten: a page of what happened last, never eleven lines, and none twice in a row.

`delayq_history = 10` and `delayq_history_repeats = False`, in the app's configuration, keep it so.
"""

from scenes.app import delayq


def page():
    """The newest line comes first."""
    return [f"{event.what.value} {event.key or event.id}" for event in delayq.history()]
