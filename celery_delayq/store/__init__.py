r"""The room that knows Redis: connections, scripts, and the steps an entry can take.

    schedule --> due --hand_over--> its list in this Redis
            \                           one script, exactly once
             --> relay --claim--> leased --ack--> gone
                   ^                |
                   +-- nack --------+      not sent, or refused
                   +-- reclaim -----+      the lease ran out: the scanner died or hung

``cancel`` and ``reschedule`` act on what waits; a lease keeps them off.
"""

from .calls import Membership
from .checking import Finding
from .connection import Connection, PooledConnection
from .copies import Copies
from .endpoint import Endpoint
from .engine import Engine, new_name
from .entries import Entries
from .ids import Target, checked_id, checked_name, target_of, target_of_key
from .keys import Keys
from .outcome import Outcome
from .refusals import Refusal, refusal_of
from .scratch import ScratchKeys
from .scripts import Scripts
from .sharded import ShardedEntries
from .values import (
    Cancelled,
    Counts,
    Entry,
    LeasedEntry,
    NewEntry,
    Receipt,
    Seen,
    State,
)
from .wakeup import Wakeup

__all__ = [
    "Cancelled",
    "Connection",
    "Copies",
    "Counts",
    "Endpoint",
    "Engine",
    "Entries",
    "Entry",
    "Finding",
    "Keys",
    "LeasedEntry",
    "Membership",
    "NewEntry",
    "Outcome",
    "PooledConnection",
    "Receipt",
    "Refusal",
    "ScratchKeys",
    "Scripts",
    "Seen",
    "ShardedEntries",
    "State",
    "Target",
    "Wakeup",
    "checked_id",
    "checked_name",
    "new_name",
    "refusal_of",
    "target_of",
    "target_of_key",
]
