"""Findings that nobody found: of every kind, about everything that there is."""

from collections.abc import Iterator

from celery_delayq.store.misfits import COUNTED, KINDS, Finding
from tests.store.support import INDEXES, Store

PLACES = ("place_without_record", "dead_without_record", "second_place", "parked_for_ever")
OF = {
    **dict.fromkeys(INDEXES, (*PLACES, "lease_without_claim", "stale_lease")),
    "records": ("record_without_place", "entry_without_tag", "entry_without_key", "number_too_low"),
    "tags": ("tag_without_entry",),
    "holders": ("key_without_entry",),
    "claims": ("claim_without_record",),
    "errors": ("error_without_record",),
    "outbox": ("owed_without_message",),
    "outbox_messages": ("message_not_owed",),
    "heartbeats": ("heartbeat_without_scanner",),
    "meta": ("number_too_low",),
    "template_uses": COUNTED,
    "templates": ("template_without_count",),
}
TOLD = {kind for kind, one in KINDS.items() if not one.repair}

assert {kind for kinds in OF.values() for kind in kinds} | TOLD == KINDS.keys()


def made_up(store: Store, *, without: tuple[str, ...] = ()) -> Iterator[Finding]:
    """Each kind that a field of a key can be of, about each field that is there."""
    for part, kinds in OF.items():
        is_index = store.raw.type(store.keys[part]) == b"zset"
        fields = store.raw.zrange(store.keys[part], 0, -1) if is_index else None
        for field in fields if fields is not None else store.raw.hkeys(store.keys[part]):
            for kind in kinds:
                if kind not in without:
                    yield Finding(kind, field.decode(errors="replace"), part, field)
