"""Compares waiting tasks and rules with the code that is about to run them; it writes nothing.

survey, slice by slice --> kinds and bodies --> shapes --Judge, each once--> rows, one for each
rules ------------------> signatures -------'                               task and reason
"""

import sys


def on_command_line() -> None:
    """Before the app is imported: what it says with ``every`` is only noted if it is preflight."""
    words = sys.argv[1:]
    if "delayq" in words and "preflight" in words[words.index("delayq") :]:
        from .. import rule_store

        rule_store.ONLY_NOTED.set(True)
