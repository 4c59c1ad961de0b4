r"""The room that knows Redis: connections, scripts, and the steps an entry can take.

    schedule --> due ----move----> its list in this Redis
            \                           one script, exactly once
             --> relay --claim--> leased --ack--> gone
                   ^                |
                   +-- release -----+      not sent, or refused
                   +-- reclaim -----+      the lease ran out: the scanner died or hung

``cancel`` and ``reschedule`` act on what waits; a lease keeps them off.
"""

from .connection import Client, Endpoint
from .engine import Claimed, Engine, Pass
from .entries import Counts, Entries, Entry, New, State
from .outcome import Outcome
from .scratch import ScratchKeys
from .wakeup import Wakeup

__all__ = [
    "Claimed",
    "Client",
    "Counts",
    "Endpoint",
    "Engine",
    "Entries",
    "Entry",
    "New",
    "Outcome",
    "Pass",
    "ScratchKeys",
    "State",
    "Wakeup",
]
