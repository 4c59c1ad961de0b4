"""The functions of kombu that every message passes, and how to see that one was changed."""

from __future__ import annotations

import os
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import kombu.messaging
from kombu import Producer
from kombu.transport import virtual


class Place(NamedTuple):
    """A function on the way of a message, and the modules that may define it, or how they begin."""

    owner: Any
    name: str
    modules: tuple[str, ...]

    @property
    def is_untouched(self) -> bool:
        """Whether one of the modules defines it: not overridden, wrapped, replaced or rewritten."""
        found = getattr(self.owner, self.name, None)
        function = found.__func__ if type(found) is MethodType else found
        # A wrapper is of another type, or marked, or its globals are another module's.
        if type(function) is not FunctionType or function.__dict__:
            return False
        module = function.__globals__["__name__"]
        # A function that was given other code has the code of another file.
        return (
            module.startswith(self.modules)
            and module.replace(".", os.sep) in function.__code__.co_filename
        )

    def __str__(self) -> str:
        owner = self.owner if isinstance(self.owner, (type, ModuleType)) else type(self.owner)
        return f"{owner.__name__}.{self.name}"


IN_KOMBU = (
    *(
        Place(Producer, name, ("kombu.messaging",))
        for name in ("publish", "_publish", "_prepare", "_delivery_details")
    ),
    Place(kombu.messaging, "dumps", ("kombu.serialization",)),
    Place(kombu.messaging, "compress", ("kombu.compression",)),
    *(
        Place(virtual.Channel, name, ("kombu.transport.virtual.base",))
        for name in ("prepare_message", "encode_body", "_inplace_augment_message")
    ),
)
