"""Rules page by page: by name if there are few, or else as the store has them.

at most SORTED --read all--> sorted by name --> 100 behind a name
more ---------a slice at a time--------------> some 100 from a place on, in no order
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...core import clock
from ...core.services import Services
from .. import rule_store as store
from ..rule_store import Stored
from .face import Rule, rules_of
from .rule import plan_of

SORTED = 1000  # a hash has no order, so all rules are read to sort them
PAGE = 100
_ENOUGH = 50  # rules that end a page; the next slice may bring a hundred


class Listed(NamedTuple):
    """A page of the rules.

    Attributes:
        rules: The rules.
        further: Where the next page begins: ``after`` a name, or at a ``place``; empty: nowhere.
        in_order: Whether they are sorted by name.
        unreadable: Names of rules that this version cannot read.
    """

    rules: list[Rule]
    further: dict[str, str]
    in_order: bool
    unreadable: list[str]


def listed(
    services: Services,
    *,
    only: str = "",
    text: str = "",
    tag: str = "",
    after: str = "",
    place: tuple[int, int] | None = None,
    seconds: float = 1.0,
) -> Listed:
    """Return a page of the rules.

    Args:
        services: The app's services.
        only: The name of the only rule; nothing else counts then.
        text: A part of their names, in either case.
        tag: A tag of their runs.
        after: The name after which the page begins.
        place: The shard and the cursor at which it begins.
        seconds: How long to look for rules that match, if there are too many to sort.
    """
    if only:
        one = store.find(services.entries, only)
        return _shown(services, [one] if one and _matches(one) else [], {})
    few = _few(services) if place is None else None
    if few is not None:
        names = sorted(name for name in few if name > after and _matches(few[name], text, tag))
        page = [few[name] for name in names[:PAGE]]
        return _shown(services, page, {"after": page[-1].name} if names[PAGE:] else {})
    until, kept = clock.monotonic() + seconds, dict[str, Stored]()
    further: tuple[int, int] | None = None
    for found, further in store.slices(services.entries, *(place or ())):  # noqa: B007
        kept |= {stored.name: stored for stored in found if _matches(stored, text, tag)}
        if len(kept) >= _ENOUGH or clock.monotonic() >= until:
            break
    at = {"place": f"{further[0]}:{further[1]}"} if further else {}
    return _shown(services, kept.values(), at, in_order=False)


def _few(services: Services) -> dict[str, Stored] | None:
    """Return all rules; ``None`` if there are too many to sort."""
    found: dict[str, Stored] = {}
    for stored in store.each(services.entries):
        found[stored.name] = stored
        if len(found) > SORTED:
            return None
    return found


def _matches(stored: Stored, text: str = "", tag: str = "") -> bool:
    if stored.is_removed or text.lower() not in stored.name.lower():
        return False
    try:
        return not tag or tag in plan_of(stored).tags
    except (ValueError, TypeError):
        return False


def _shown(
    services: Services, stored: Iterable[Stored], further: dict[str, str], *, in_order: bool = True
) -> Listed:
    rules, unreadable = list[Rule](), list[str]()
    for one, read in rules_of(services, [*stored]):
        if isinstance(read, Rule):
            rules.append(read)
        else:
            unreadable.append(one.name)
    return Listed(rules, further, in_order, unreadable)
