"""The latest ten: a page of the last events, ten lines at most, without immediate repeats.

The app's settings `delayq_history = 10` and `delayq_history_repeats = False` ensure that. Changes
of many tasks have a list of their own, so the page asks for ten of all.
"""

from scenes.app import delayq


def page():
    """Return the lines, the newest first."""
    return [f"{event.what.value} {event.key or event.id}" for event in delayq.history(10)]
