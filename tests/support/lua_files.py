"""The files of which the scripts are made, and scripts of files that a test has changed."""

import functools
from collections.abc import Callable

from celery_delayq.core.store import scripts
from celery_delayq.core.store.scripts import (
    Code,
    Prelude,
    Script,
    arguments_of,
    gate_of,
    load,
    prelude,
)

#: The text of each script, and of each part of the prelude, those that others use first.
SCRIPTS = {
    path.name.removesuffix(".lua"): path.read_text("utf-8")
    for path in sorted(scripts.FOLDER.iterdir(), key=lambda path: path.name)
    if path.name.endswith(".lua")
}
PRELUDE = {
    name: (scripts.FOLDER / "prelude" / f"{name}.lua").read_text("utf-8")
    for name in scripts.PRELUDE
}


def altered(change: Callable[[str], str]) -> dict[str, Script]:
    """Return the scripts that are others once each file is changed so, by their names."""
    shared = Prelude(map(change, PRELUDE.values()))
    ours, theirs = prelude().definitions, shared.definitions
    changed = {name for name, one in ours.items() if theirs.get(name) != one}
    return {
        name: script
        for name, text in SCRIPTS.items()
        if change(text) != text or changed & _used(name)
        if (script := Script.parse(name, shared, change(text))).text != load()[name].text
    }


@functools.cache
def _used(name: str) -> set[str]:
    header = SCRIPTS[name].partition("]]\n")[0]
    whole = gate_of(header) + arguments_of(header) + SCRIPTS[name]
    return {one.name for one in prelude().used(Code(whole))}
