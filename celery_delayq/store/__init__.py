r"""The room that knows Redis: connections, scripts, and the steps an entry can take.

    schedule --> due --hand_over--> its list in this Redis
            \                           one script, exactly once
             --> relay --claim--> leased --ack--> gone
                   ^                |
                   +-- nack --------+      not sent, or refused
                   +-- reclaim -----+      the lease ran out: the scanner died or hung

``cancel`` and ``reschedule`` act on what waits; a lease keeps them off.
"""

from .changes import CHUNK, NOW
from .connection import Connection, PooledConnection
from .copies import Copies
from .credentials import Credentials
from .dumps import Kept
from .endpoint import Endpoint, Server
from .engine import Engine, new_name
from .entries import Entries
from .happened import Happened, What
from .ids import (
    Target,
    checked_id,
    checked_name,
    plain_text,
    target_of,
    target_of_key,
    target_of_member,
)
from .keys import Keys
from .lists import Lists, Waiting
from .loads import OldEntry
from .member import Membership
from .misfits import KINDS, Finding, Kind, Repaired
from .outcome import Outcome
from .overview import Counts, Pause, Scanner, lane_in_words, sum_of, union_of
from .queues import Tally
from .record import label_of, lane_for
from .refusals import Refusal, is_replica, refusal_of
from .replicas import Wanted
from .scratch import ScratchKeys
from .scripts import Scripts
from .selecting import Chosen, Met, Place
from .sentinels import ASK, ASKED_ONCE, SentinelGroup
from .sharded import ShardedEntries
from .values import (
    Cancelled,
    Change,
    Delivery,
    Entry,
    LeasedEntry,
    NewEntry,
    Receipt,
    Seen,
    State,
)
from .wakeup import Wakeup

__all__ = [
    "ASK",
    "ASKED_ONCE",
    "CHUNK",
    "KINDS",
    "NOW",
    "Cancelled",
    "Change",
    "Chosen",
    "Connection",
    "Copies",
    "Counts",
    "Credentials",
    "Delivery",
    "Endpoint",
    "Engine",
    "Entries",
    "Entry",
    "Finding",
    "Happened",
    "Kept",
    "Keys",
    "Kind",
    "LeasedEntry",
    "Lists",
    "Membership",
    "Met",
    "NewEntry",
    "OldEntry",
    "Outcome",
    "Pause",
    "Place",
    "PooledConnection",
    "Receipt",
    "Refusal",
    "Repaired",
    "Scanner",
    "ScratchKeys",
    "Scripts",
    "Seen",
    "SentinelGroup",
    "Server",
    "ShardedEntries",
    "State",
    "Tally",
    "Target",
    "Waiting",
    "Wakeup",
    "Wanted",
    "What",
    "checked_id",
    "checked_name",
    "is_replica",
    "label_of",
    "lane_for",
    "lane_in_words",
    "new_name",
    "plain_text",
    "refusal_of",
    "sum_of",
    "target_of",
    "target_of_key",
    "target_of_member",
    "union_of",
]
