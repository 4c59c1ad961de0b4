"""Invented findings: of every kind, about everything in a store."""

from collections.abc import Iterator

from celery_delayq.contrib.care.check import COUNTED, KINDS, Finding
from tests.store.support import INDEXES, Store

PLACES = ("record_without_place", "place_without_record", "second_place")
OF = {
    **dict.fromkeys(INDEXES, PLACES),
    "records": ("record_without_place", "wrong_tag", "wrong_key", "number_too_low"),
    "tags": ("wrong_tag",),
    "holders": ("wrong_key",),
    "claims": ("leftover",),
    "errors": ("leftover",),
    "outbox": ("owed_revoked",),
    "outbox_messages": ("owed_revoked",),
    "meta": ("number_too_low",),
    "template_uses": (COUNTED,),
    "templates": (COUNTED,),
}
TOLD = {kind for kind, one in KINDS.items() if not one.repair}

assert {kind for kinds in OF.values() for kind in kinds} | TOLD == KINDS.keys()


def made_up(store: Store, *, without: tuple[str, ...] = ()) -> Iterator[Finding]:
    """Each kind of finding that a key's fields can have, about each of its fields."""
    for part, kinds in OF.items():
        is_index = store.raw.type(store.keys[part]) == b"zset"
        fields = store.raw.zrange(store.keys[part], 0, -1) if is_index else None
        for field in fields if fields is not None else store.raw.hkeys(store.keys[part]):
            for kind in kinds:
                if kind not in without:
                    yield Finding(kind, field.decode(errors="replace"), part, field)
