r"""Everything kept in Redis: the scripts, and the steps that an entry can take.

    schedule --> due --hand_over--> its list in this Redis
            \                           one script, exactly once
             --> relay --claim--> leased --ack--> gone
                   ^                |
                   +-- nack --------+      not sent, or refused
                   +-- reclaim -----+      the lease ran out: the scanner died or hung

``cancel`` and ``reschedule`` act on waiting entries; a leased entry refuses them.
"""

from .calls import Shard, Wanted
from .changes import CHUNK
from .counts import Counts, LiveScanner, Pause, QueueCount, lane_in_words, sum_of, union_of
from .entries import Entries
from .keys import (
    Keys,
    Target,
    checked_id,
    checked_name,
    id_beside,
    id_text,
    plain_text,
    target_of,
    target_of_key,
    target_of_member,
)
from .listing import Listing
from .lookup import Departure, HistoryEntry, Keyed, KeyHolder, What
from .membership import Membership, emptied
from .record import Entry, State, label_of, lane_for
from .scripts import Scripts
from .selection import Filter, Match, Position
from .values import (
    Cancelled,
    Change,
    Delivery,
    NewEntry,
    Outcome,
    Receipt,
)

__all__ = [
    "CHUNK",
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
    "Keyed",
    "Keys",
    "Listing",
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
