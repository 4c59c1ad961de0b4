"""What the Redis user may not do of what the store needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ..logs import plain
from ..message.outgoing import list_key
from ..services import Services
from ..store.rights import Rights
from ..store.rights import rights as rights_of
from ..store.risks import ERROR, OK, WARNING, Level, Line
from .patient import Patient

# Without these a scanner is not told of anything, and looks by itself when its interval is over.
FORGIVEN = ("publish", "subscribe")
SHOWN = 3  # keys
_USER = "this Redis does not let its user"


def rights(patient: Patient) -> Iterator[Line]:
    """All that is missing, each by its name; found out by trying."""
    services = patient.services
    lists = _lists(services) if services.store_is_broker else []
    found = rights_of(patient.connection, [one.keys for one in services.scripts], lists)
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


def _keys(found: Rights, services: Services, lists: Sequence[str]) -> Iterator[Line]:
    own = [key for key in found.keys if key not in lists]
    if own:
        more = f" and {len(own) - SHOWN} more" if len(own) > SHOWN else ""
        said = f"{_USER} use the store's keys: {', '.join(own[:SHOWN])}{more}"
        yield _line(ERROR, said, [f"~{{{services.settings.prefix}:*}}:*"])
    foreign = [key for key in found.keys if key in lists]
    if foreign:
        said = f"{_USER} push to {_all(foreign)}: what is due for it waits"
        yield _line(ERROR, said, [f"~{key}" for key in foreign])


def _line(level: Level, said: str, rules: Iterable[str]) -> Line:
    return Line("rights", level, said, " ".join(rules))


def _all(names: Sequence[str]) -> str:
    return ", ".join(names)


def _lists(services: Services) -> list[str]:
    """The lists of the app's queues, as a message without priority is pushed to them."""
    options = services.broker.options
    prefix = options.get("global_keyprefix", "")
    return [f"{prefix}{list_key(name, None, options)}" for name in services.app.amqp.queues]
