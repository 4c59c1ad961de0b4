"""The functions of kombu that every message passes, and a check whether one was changed."""

from __future__ import annotations

import os
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import kombu.messaging
from kombu import Producer
from kombu.transport import virtual


class KombuFunction(NamedTuple):
    """A function that each message passes, and the modules (or prefixes) that may define it."""

    owner: Any
    name: str
    modules: tuple[str, ...]

    @property
    def is_untouched(self) -> bool:
        """Whether one of the modules defines it: not overridden, wrapped, replaced or rewritten."""
        found = getattr(self.owner, self.name, None)
        function = found.__func__ if type(found) is MethodType else found
        # A wrapper has another type, or a mark, or the globals of another module.
        if type(function) is not FunctionType or function.__dict__:
            return False
        module = function.__globals__["__name__"]
        # If its code was replaced, the code is from another file.
        return (
            module.startswith(self.modules)
            and module.replace(".", os.sep) in function.__code__.co_filename
        )

    def __str__(self) -> str:
        owner = self.owner if isinstance(self.owner, (type, ModuleType)) else type(self.owner)
        return f"{owner.__name__}.{self.name}"


IN_KOMBU = (
    *(
        KombuFunction(Producer, name, ("kombu.messaging",))
        for name in ("publish", "_publish", "_prepare", "_delivery_details")
    ),
    KombuFunction(kombu.messaging, "dumps", ("kombu.serialization",)),
    KombuFunction(kombu.messaging, "compress", ("kombu.compression",)),
    *(
        KombuFunction(virtual.Channel, name, ("kombu.transport.virtual.base",))
        for name in ("prepare_message", "encode_body", "_inplace_augment_message")
    ),
)
