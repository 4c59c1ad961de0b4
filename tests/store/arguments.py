"""The arguments of a script: a test gives those that it is about, and the others are here.

A script's header declares them with their types. By default an argument is empty, 0 or no row;
those that a script does not take so, or that few tests are about, are in ``USUAL``.
"""

import re
from functools import cache
from importlib import resources
from typing import Any

from celery_delayq.core.clock import MAX_DUE_MS

FOLDER = resources.files("celery_delayq.core.store") / "lua"
ARGUMENT = re.compile(r"^(text|number|flag|filter|rows)(\.\.\.)?\s+(\w+)", re.MULTILINE)
EMPTY = {"text": "", "number": 0, "flag": 0, "filter": ""}
USUAL = {
    "after": -1,
    "before": 2**53,
    "count": 100,
    "cursor": 0,
    "if_due": "",
    "latest": MAX_DUE_MS,
    "lease": 15_000,
    "lease_ms": 1000,
    "limit": 100,
    "max_bytes": 1_000_000,
    "most": 10,
    "order": -1,
    "revoker": "none",
    "revokes": "none",
    "tells": 1,
}


def arguments(script: str, **about: Any) -> dict[str, Any]:
    """All arguments of a script, but those of a call, which ``requests`` has."""
    return {**_defaults(script), **about}


@cache
def _defaults(script: str) -> dict[str, Any]:
    header = (FOLDER / f"{script}.lua").read_text("utf-8").partition("]]\n")[0]
    return {
        name: () if dots else USUAL.get(name, EMPTY[kind])
        for kind, dots, name in ARGUMENT.findall(header)
    }
