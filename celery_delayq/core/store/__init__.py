r"""Everything kept in Redis: the scripts, and the steps that an entry can take.

    schedule --> due --hand_over--> its list in this Redis
            \                           one script, exactly once
             --> relay --claim--> leased --ack--> gone
                   ^                |
                   +-- nack --------+      not sent, or refused
                   +-- reclaim -----+      the lease ran out: the scanner died or hung

``cancel`` and ``reschedule`` act on waiting entries; a leased entry refuses them.
"""

from .changes import CHUNK, NOW
from .entries import Entries
from .filter import Filter
from .history_entry import HistoryEntry, What
from .holder import KeyHolder
from .ids import (
    Target,
    checked_id,
    checked_name,
    id_text,
    plain_text,
    target_of,
    target_of_key,
    target_of_member,
)
from .keys import Keys, id_beside
from .lookup import Departure
from .outcome import Outcome
from .overview import Counts, LiveScanner, Pause, lane_in_words, sum_of, union_of
from .queue_counts import QueueCount
from .record import label_of, lane_for
from .registration import Membership, emptied
from .replicas import Wanted
from .scripts import Scripts
from .selection_scan import Match, Position
from .shard import Shard
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

__all__ = [
    "CHUNK",
    "NOW",
    "Cancelled",
    "Change",
    "Counts",
    "Delivery",
    "Departure",
    "Entries",
    "Entry",
    "Filter",
    "HistoryEntry",
    "KeyHolder",
    "Keys",
    "LeasedEntry",
    "LiveScanner",
    "Match",
    "Membership",
    "NewEntry",
    "Outcome",
    "Pause",
    "Position",
    "QueueCount",
    "Receipt",
    "Scripts",
    "Seen",
    "Shard",
    "State",
    "Target",
    "Wanted",
    "What",
    "checked_id",
    "checked_name",
    "emptied",
    "id_beside",
    "id_text",
    "label_of",
    "lane_for",
    "lane_in_words",
    "plain_text",
    "sum_of",
    "target_of",
    "target_of_key",
    "target_of_member",
    "union_of",
]
