"""The items of ``schedule_many``: the arguments of a call, and options of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Union
from uuid import UUID

from ..core.clock import TimeInput
from ..core.errors import InvalidOption
from ..core.scheduling.options import PREFIX, TaskOptions, as_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

_EXPECTED = "(args, kwargs), such as ((1,), {}), or a celery_delayq.Item"
_LEAST = 2  # fields of a plain tuple


class _Fields(NamedTuple):
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    time: Union[TimeInput, timedelta] | None
    task_id: Union[str, UUID] | None
    options: Mapping[str, Any]


class Item(_Fields):
    """One call of a bulk. A plain tuple of the first fields, at least two, works as well.

    Args:
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        time: Its own due time: a timedelta from now, or a time as for ``at``.
        task_id: Its own id: text, or a ``UUID``.
        **options: Its own options, as for ``delayq.schedule``; ``None`` takes the signature's
            value.

    Attributes:
        options: The same, by the names that a call uses, such as ``delayq_key``.
    """

    __slots__ = ()
    __module__ = "celery_delayq"  # as pickles name it

    def __new__(  # noqa: PYI034 - mypy refuses Self in it
        cls,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] = MappingProxyType({}),
        time: Union[TimeInput, timedelta] | None = None,
        task_id: Union[str, UUID] | None = None,
        **options: Unpack[TaskOptions],
    ) -> Item:
        return super().__new__(cls, args, kwargs, time, task_id, as_options(options))

    def __reduce__(self) -> tuple[Any, ...]:
        options = {name.removeprefix(PREFIX): value for name, value in self.options.items()}
        return partial(type(self), **options), (
            self.args,
            dict(self.kwargs),
            self.time,
            self.task_id,
        )


def item_of(given: Any) -> Item:
    """Return an item, from an item or a tuple.

    Raises:
        InvalidOption: it is neither.
    """
    try:
        fields = tuple(given)
        item = given if isinstance(given, Item) else Item(*fields)
    except TypeError:
        raise InvalidOption("item", given, _EXPECTED) from None
    # One field might be the arguments themselves.
    is_whole = len(fields) >= _LEAST and isinstance(item.args, (list, tuple))
    if not is_whole or not isinstance(item.kwargs, Mapping):
        raise InvalidOption("item", given, _EXPECTED)
    return item
