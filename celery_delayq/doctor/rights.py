"""What the Redis user may not do of what the store needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..logs import plain
from ..message.outgoing import list_keys
from ..servers.risks import ERROR, OK, WARNING, Level, Line
from ..services import Services
from ..store.rights import Rights
from ..store.rights import rights as rights_of
from .patient import Patient

# Without these a scanner is not told of anything, and looks by itself when its interval is over.
FORGIVEN = ("publish", "subscribe")
SHOWN = 3  # keys
_USER = "this Redis does not let its user"


def rights(patient: Patient) -> Iterator[Line]:
    """All that is missing, each by its name; found out by trying."""
    services = patient.services
    lists = _lists(services) if services.store_is_broker else {}
    pushed_to = [key for keys in lists.values() for key in keys]
    found = rights_of(patient.connection, [one.keys for one in services.scripts], pushed_to)
    lines = [*_commands(found), *_telling(found, services), *_keys(found, services, lists)]
    user = plain(services.endpoint.user) or "<user>"
    lines = [replace(one, advice=f"ACL SETUSER {user} {one.advice}") for one in lines]
    if found.untried:
        said = f"not every command could be tried, as {found.untried}"
        lines.append(Line("rights", WARNING, said, "grant what is missing, and look again"))
    what = "every command of its scripts, every key" + ", every queue's list" * bool(lists)
    yield from lines or [Line("rights", OK, f"its user may do all that is needed: {what}")]


def _commands(found: Rights) -> Iterator[Line]:
    needed = sorted({*found.commands} - {*FORGIVEN})
    if needed:
        said = f"{_USER} run {_all(needed)}: a step that needs it stops half-way"
        yield _line(ERROR, said, [f"+{one}" for one in needed])


def _telling(found: Rights, services: Services) -> Iterator[Line]:
    late = f"so tasks may be late by {services.settings.safety_interval:g} s"
    forgiven = sorted({*found.commands} & {*FORGIVEN})
    if forgiven:
        said = f"{_USER} run {_all(forgiven)}: scanners are not told, {late}"
        yield _line(WARNING, said, [f"+{one}" for one in forgiven])
    if found.channels:
        said = f"{_USER} use the channels of scanners: they are not told, {late}"
        yield _line(WARNING, said, [f"&{{{services.settings.prefix}:*}}:*"])


def _keys(found: Rights, services: Services, lists: Mapping[str, Sequence[str]]) -> Iterator[Line]:
    refused = {*found.keys}
    own = [key for key in found.keys if not any(key in keys for keys in lists.values())]
    if own:
        more = f" and {len(own) - SHOWN} more" if len(own) > SHOWN else ""
        said = f"{_USER} use the store's keys: {', '.join(own[:SHOWN])}{more}"
        yield _line(ERROR, said, [f"~{{{services.settings.prefix}:*}}:*"])
    without = [name for name, keys in lists.items() if keys[0] in refused]
    if without:
        said = f"{_USER} push to {_all(without)}: what is due for it waits"
        rules = [f"~{name}" if lists[name][0] == name else f"~{name}*" for name in without]
        yield _line(ERROR, said, rules)
    # Whether anything has a priority, nobody knows before it is scheduled.
    with_priority = [name for name, keys in lists.items() if refused & {*keys[1:]}]
    if with_priority:
        of_priorities = f"the lists of {_all(with_priority)} for priorities"
        said = f"{_USER} push to {of_priorities}: what is due for these waits"
        yield _line(WARNING, said, [f"~{name}*" for name in with_priority])


def _line(level: Level, said: str, rules: Iterable[str]) -> Line:
    return Line("rights", level, said, " ".join(rules))


def _all(names: Sequence[str]) -> str:
    return ", ".join(names)


def _lists(services: Services) -> dict[str, list[str]]:
    """Of each of the app's queues its lists: that of no priority first, which has its name.

    Those of priorities have a separator behind that name, which no terminal can show. The first has
    it too where ``priority_steps`` does not begin with 0.
    """
    options = services.broker.options
    prefix = options.get("global_keyprefix", "")
    queues = {name: list_keys(name, options) for name in services.app.amqp.queues}
    return {f"{prefix}{name}": [f"{prefix}{key}" for key in keys] for name, keys in queues.items()}
