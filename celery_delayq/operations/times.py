"""The due times of a bulk's items: one for all, one each, an item's own, or spread at random."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from datetime import timedelta, tzinfo
from itertools import repeat
from random import Random
from typing import Any, Union

from ..core import clock
from ..core.clock import DelayInput, TimeInput, When
from ..core.errors import InvalidOption

_SPREAD = "two times, or two timedeltas, the earlier one first"

Spread = tuple[Union[TimeInput, timedelta], Union[TimeInput, timedelta]]


def times_for(
    items: Any,
    zone: tzinfo,
    *,
    at: TimeInput | Sequence[TimeInput] | None = None,
    after: DelayInput | Sequence[DelayInput] | None = None,
    spread: Spread | None = None,
) -> Iterator[When | None]:
    """Return a time for each item.

    Raises:
        InvalidOption: more than one of them is given; there is not one time for each item; the
            spread is invalid.
        InvalidDueTime: a value is no time.
    """
    given = {"at": at, "after": after, "spread": spread}
    given = {name: value for name, value in given.items() if value is not None}
    if len(given) > 1:
        raise InvalidOption("time", given, "at most one of at, after, spread")
    if spread is not None:
        return _spread(spread, zone)
    for name, value in given.items():
        if isinstance(value, (list, tuple)):
            return iter(_each(name, value, items, zone))
        return repeat(_time(name, value, zone))
    return repeat(None)


def _each(name: str, values: Sequence[Any], items: Any, zone: tzinfo) -> list[When | None]:
    if not isinstance(items, Sized):
        raise InvalidOption(
            f"len({name})", len(values), "items that can be counted, a time for each"
        )
    if len(items) != len(values):
        raise InvalidOption(f"len({name})", len(values), f"{len(items)}, a time for each item")
    return [_time(name, value, zone) for value in values]


def _time(name: str, value: Any, zone: tzinfo) -> When:
    return clock.at(value, zone) if name == "at" else clock.after(value)


def own_time(value: Any, zone: tzinfo) -> When:
    """Return the time of an item; a timedelta counts from now."""
    return clock.after(value) if isinstance(value, timedelta) else clock.at(value, zone)


def _spread(spread: Any, zone: tzinfo) -> Iterator[When | None]:
    try:
        earliest, latest = spread
    except (TypeError, ValueError):
        raise InvalidOption("spread", spread, _SPREAD) from None
    first, last = own_time(earliest, zone), own_time(latest, zone)
    if first.mode != last.mode or first.ms > last.ms:
        raise InvalidOption("spread", spread, _SPREAD)
    # Python's own generator continues with the same numbers in all processes that were forked in C.
    chance, count = Random().random, last.ms - first.ms + 1
    drawn = (first.ms + int(chance() * count) for _ in repeat(None))
    return (When(first.mode, ms, spread, first.rounded_us) for ms in drawn)
