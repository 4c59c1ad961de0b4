"""The scripts with a safeguard taken out, to see that the simulator misses it."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from celery_delayq.store.connection import packed
from tests.store.support import ClockedScripts


@dataclass(frozen=True)
class Sabotage:
    """Edits of the scripts' texts; each must fit somewhere.

    Attributes:
        rules: The rules that are broken without it.
        seeds: How many of them are enough to find that out.
    """

    name: str
    edits: tuple[tuple[str, str], ...] = ()
    rules: frozenset[str] = frozenset()
    seeds: int = 50

    def scripts(self, connection: Any, keys: Any) -> ClockedScripts:
        return _Edited(connection, keys, self.edits)


NONE = Sabotage("none")
SABOTAGES: tuple[Sabotage, ...] = ()


class _Edited(ClockedScripts):
    def __init__(self, connection: Any, keys: Any, edits: tuple[tuple[str, str], ...]):
        super().__init__(connection, keys)
        self._edits = edits

    def _prepare(self, name: str, index: str) -> Any:
        call = super()._prepare(name, index)
        text = call.script.text
        for old, new in self._edits:
            text = text.replace(old, new)
        if text != call.script.text:
            sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
            script = replace(call.script, text=text, sha=sha)
            call = replace(call, script=script, by_sha=packed(["EVALSHA", sha]))
            self._calls[name, index] = call
        return call
