"""The script's own decision about a new entry that meets others, without Redis.

``decide`` in ``lua/prelude/conflict.lua`` is a function of facts. Here it runs in a Lua of its own.
"""

import functools

from lupa import lua51

from celery_delayq.core.store.scripts import prelude

HEAD = (
    "a new task meets",
    "`reject`",
    "`keep`",
    "`replace`, `debounce`",
    "`earliest`",
    "`latest`",
)
POLICIES = ("reject", "keep", "replace", "debounce", "earliest", "latest")
DUE = 1000  # of those that it meets
# The entry with the new one's id, the one with its key, and the one behind that.
MEETINGS = {
    "a waiting task with its key": (None, "waiting", None),
    "a delivered task that holds its key": (None, "busy", None),
    "the same, and one that waits behind that": (None, "busy", "waiting"),
    "a waiting task with its id": ("waiting", None, None),
    "one with its id that is being published": ("leased", None, None),
    "a dead letter with its id": ("dead", None, None),
    "one with its id that cannot be read": ("unreadable", None, None),
}


@functools.cache
def _decision():
    lua = lua51.LuaRuntime()
    decide = lua.execute(prelude().definitions["decide"].code.with_names({}) + "return decide")
    return lua, decide


def outcome(policy, when, own=None, holder=None, behind=None):
    """The outcome for a new entry, due at *when*, and which of the three it is about."""
    lua, decide = _decision()
    states = {"own": own, "holder": holder, "behind": behind}
    met = {
        name: state and lua.table_from({"state": state, "name": name, "due": DUE})
        for name, state in states.items()
    }
    told = decide(policy, when, met["own"], met["holder"], met["behind"], behind is not None)
    word, other = told if isinstance(told, tuple) else (told, None)
    return word, other and other["name"]


def words(policy, own, holder, behind):
    """The same for users, whatever the due time."""
    earlier, same, later = (outcome(policy, DUE + n, own, holder, behind) for n in (-1, 0, 1))
    if (earlier[0] == "kept") != (later[0] == "kept"):
        stays = "later" if earlier[0] == "kept" else "earlier"
        assert same[0] == "kept"
        return f"the one due {stays} stays"
    assert earlier == same == later
    word, other = same
    return {
        "scheduled": "`AlreadyScheduled`",
        "held": "`KeyHeld`",
        "leased": "`InFlight`",
        "dead": "`AlreadyDead`",
        "kept": "it stays",
        "waits": "it gives way" if own or other else "the new one waits",
        "behind": "the one behind gives way" if other else "the new one waits behind it",
    }[word]


def table():
    """The rows of the documentation's table; another one has what waiting tasks meet."""
    for meeting, found in MEETINGS.items():
        if {"waiting", "unreadable"} & {*found[:2]}:
            continue
        cells = [words(policy, *found) for policy in POLICIES]
        assert cells[2] == cells[3], "replace and debounce differ in the due time only"
        yield (meeting, *cells[:3], *cells[4:])
