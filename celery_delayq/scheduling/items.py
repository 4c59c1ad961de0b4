"""The items of ``schedule_many``: the arguments of a call, and options of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Union
from uuid import UUID

from ..clock import DelayInput, TimeInput
from ..errors import InvalidOption
from .options import NAMES, Conflict, Late, Tags, UniqueUntil

_EXPECTED = "(args, kwargs), such as ((1,), {}), or a celery_delayq.Item"
_LEAST = 2  # fields of a plain tuple
_PLAIN = 4  # fields before those that are options
_NOTHING = (None,) * len(NAMES)


class Item(NamedTuple):
    """One call of a bulk. A plain tuple of its first fields, at least two, works as well.

    Attributes:
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        time: Its own due time: a timedelta from now, or a time as for ``at``.
        task_id: Its own id: text, or a ``UUID``.
        key: Its unique key. This and the next fields are as for ``delayq.schedule``; ``None`` takes
            the signature's value.
        conflict: One of the policies.
        max_wait: Seconds, or a timedelta.
        tags: A list of text.
        late: ``run`` or ``skip``.
        grace: Seconds, or a timedelta.
        unique_until: ``delivered`` or ``finished``.
        unique_for: Seconds, or a timedelta.
    """

    args: Sequence[Any]
    kwargs: Mapping[str, Any] = {}
    time: Union[TimeInput, timedelta] | None = None
    task_id: Union[str, UUID] | None = None
    key: str | None = None
    conflict: Conflict | None = None
    max_wait: DelayInput | None = None
    tags: Tags | None = None
    late: Late | None = None
    grace: DelayInput | None = None
    unique_until: UniqueUntil | None = None
    unique_for: DelayInput | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of its entry, by the names that a call uses."""
        given = self[_PLAIN:]
        if given == _NOTHING:
            return {}
        return {name: value for name, value in zip(NAMES, given, strict=True) if value is not None}


def item_of(given: Any) -> Item:
    """Return an item, from an item or a tuple.

    Raises:
        InvalidOption: it is neither.
    """
    try:
        fields = tuple(given)
        item = Item(*fields)
    except TypeError:
        raise InvalidOption("item", given, _EXPECTED) from None
    # One field might be the arguments themselves.
    is_whole = len(fields) >= _LEAST and isinstance(item.args, (list, tuple))
    if not is_whole or not isinstance(item.kwargs, Mapping):
        raise InvalidOption("item", given, _EXPECTED)
    return item
