"""What the Redis user may not do of what the store needs, as ``ACL DRYRUN`` tells it.

Nothing runs. Redis 7 and Valkey know the command, and the user needs ``+acl|whoami +acl|dryrun``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..logs import plain
from ..message.outgoing import list_keys
from ..servers import Connection
from ..servers.facts import ask
from ..servers.risks import ERROR, OK, WARNING, Level, Line
from ..services import Services

#: What scripts call, by how many words stand behind the key.
CALLED = {
    0: "DEL GET HLEN UNLINK ZCARD",
    1: "HDEL HEXISTS HGET HMGET HSCAN HSTRLEN LPUSH RENAME SET ZREM ZSCAN ZSCORE",
    2: "HINCRBY HSET LRANGE LTRIM ZADD ZCOUNT ZLEXCOUNT ZRANGE ZRANGEBYLEX ZRANGEBYSCORE "
    "ZREMRANGEBYRANK ZREVRANGE",
}
SHOWN = 3  # keys
_USER = "this Redis does not let its user"
_UNKNOWN = (
    "unknown: only Redis 7 and Valkey tell, and only a user with +acl|whoami +acl|dryrun; a step "
    "that meets a missing right names it"
)

#: Redis's answer to a command in a dry run: ``OK``, or why it would refuse.
DryRun = Callable[..., bytes | None]


def rights(services: Services, connection: Connection) -> Iterator[Line]:
    """All that is missing, each by its name."""
    user = (ask(connection, "ACL", "WHOAMI") or b"").decode()

    def dry(*command: str | int) -> bytes | None:
        answer: bytes | None = ask(connection, "ACL", "DRYRUN", user, *command)
        return answer

    if dry("EVAL", "", 0) is None:
        yield Line("rights", OK, _UNKNOWN)
        return
    lists = _lists(services) if services.store_is_broker else {}
    lines = [*_commands(dry, services), *_channels(dry, services), *_keys(dry, services, lists)]
    what = "every command of its scripts, every key" + ", every queue's list" * bool(lists)
    yield from (replace(one, advice=f"ACL SETUSER {plain(user)} {one.advice}") for one in lines)
    if not lines:
        yield Line("rights", OK, f"its user may do all that is needed: {what}")


def _commands(dry: DryRun, services: Services) -> Iterator[Line]:
    key = services.scripts[0].keys["due"]
    calls: list[tuple[str | int, ...]] = [("EVAL", "", 0), ("EVALSHA", "", 0), ("TIME",)]
    calls += [(name, key, *[key] * n) for n, names in CALLED.items() for name in names.split()]
    needed = sorted(str(call[0]).lower() for call in calls if _may_not_run(dry(*call)))
    if needed:
        said = f"{_USER} run {_all(needed)}: a step that needs it stops half-way"
        yield _line(ERROR, said, [f"+{one}" for one in needed])


def _channels(dry: DryRun, services: Services) -> Iterator[Line]:
    late = f"so tasks may be late by {services.settings.safety_interval:g} s"
    told = {
        (name, channel): dry(name, channel, *message)
        for name, message in (("PUBLISH", [""]), ("SUBSCRIBE", []))
        for one in services.scripts
        for channel in one.keys.channels("doctor")
    }
    commands = sorted({name.lower() for (name, _), why in told.items() if _may_not_run(why)})
    if commands:
        said = f"{_USER} run {_all(commands)}: scanners are not told, {late}"
        yield _line(WARNING, said, [f"+{one}" for one in commands])
    if any(why != b"OK" and not _may_not_run(why) for why in told.values()):
        said = f"{_USER} use the channels of scanners: they are not told, {late}"
        yield _line(WARNING, said, [f"&{{{services.settings.prefix}:*}}:*"])


def _keys(dry: DryRun, services: Services, lists: Mapping[str, Sequence[str]]) -> Iterator[Line]:
    def is_refused(key: str) -> bool:
        why = dry("EVAL", "", 1, key)
        return why != b"OK" and not _may_not_run(why)

    own = [key for one in services.scripts for key in one.keys.names if is_refused(key)]
    if own:
        more = f" and {len(own) - SHOWN} more" if len(own) > SHOWN else ""
        said = f"{_USER} use the store's keys: {', '.join(own[:SHOWN])}{more}"
        yield _line(ERROR, said, [f"~{{{services.settings.prefix}:*}}:*"])
    without = [name for name, keys in lists.items() if is_refused(keys[0])]
    if without:
        said = f"{_USER} push to {_all(without)}: what is due for it waits"
        rules = [f"~{name}" if lists[name][0] == name else f"~{name}*" for name in without]
        yield _line(ERROR, said, rules)
    # Nobody knows before it is scheduled whether anything has a priority.
    with_priority = [name for name, keys in lists.items() if any(map(is_refused, keys[1:]))]
    if with_priority:
        of_priorities = f"the lists of {_all(with_priority)} for priorities"
        said = f"{_USER} push to {of_priorities}: what is due for these waits"
        yield _line(WARNING, said, [f"~{name}*" for name in with_priority])


def _may_not_run(why: bytes | None) -> bool:
    """Whether it is the command that is refused, not its key or channel; or is not there."""
    return why is None or b"to run the" in why


def _line(level: Level, said: str, rules: Sequence[str]) -> Line:
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
