"""Checks which rights the Redis user lacks, by ``ACL DRYRUN``, which runs nothing.

Redis 7 and Valkey know the command, and the user needs ``+acl|whoami +acl|dryrun``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...core.errors import StoreError
from ...core.message.outgoing import list_keys
from ...core.servers.connection import Connection
from ...core.servers.risks import ERROR, OK, WARNING, Level, Line, ask
from ...core.services import Services
from ...core.text import plain
from ...operations.queues import queue_counts

#: The commands that scripts call, by the number of arguments after the key.
CALLED = {
    0: "EXISTS HLEN UNLINK ZCARD",
    1: "HDEL HEXISTS HGET HMGET HSCAN HSTRLEN LPUSH PEXPIRE RENAME ZREM ZSCAN ZSCORE",
    2: "HINCRBY HSET LRANGE LTRIM ZADD ZCOUNT ZLEXCOUNT ZRANGE ZRANGEBYLEX ZRANGEBYSCORE "
    "ZREMRANGEBYRANK ZREVRANGE ZREVRANGEBYLEX",
}
SHOWN = 3  # keys
#: Each refusal of Redis, and its effect, by the kind of call that finds it.
MEANS: dict[str, tuple[Level, str]] = {
    "command": (ERROR, "run {}: a step that needs it stops half-way"),
    "tell": (WARNING, "run {}: scanners are not woken, so tasks may be late by {late:g} s"),
    "channel": (
        WARNING,
        "use the channels of scanners: they are not woken, so tasks may be late by {late:g} s",
    ),
    "key": (ERROR, "use the store's keys: {}"),
    "list": (ERROR, "push to {}: due tasks wait"),
    # A task's priority is unknown until it is scheduled, so this is only a warning.
    "priority": (
        WARNING, "push to the lists of {} for priorities: their due tasks wait"
    ),
}  # fmt: skip
_UNKNOWN = (
    "unknown: this needs Redis 7 or Valkey, and a user with +acl|whoami +acl|dryrun; a step "
    "that lacks a right names it"
)


class Call(NamedTuple):
    """A command to try, and its key or channel: in words, and as an ACL rule."""

    kind: str
    what: str
    rule: str
    command: tuple[str | int, ...]


def rights(services: Services, connection: Connection) -> Iterator[Line]:
    """Yield a line for each kind of missing right, with the names."""
    user = (ask(connection, "ACL", "WHOAMI") or b"").decode()
    if ask(connection, "ACL", "DRYRUN", user, "EVAL", "", 0) is None:
        yield Line("rights", OK, _UNKNOWN)
        return
    refused: dict[str, dict[str, str]] = {kind: {} for kind in MEANS}
    for kind, what, rule, command in _calls(services):
        why = ask(connection, "ACL", "DRYRUN", user, *command)
        if why is None or b"to run the" in why:  # the command itself is refused or missing
            name = str(command[0]).lower()
            refused["tell" if kind == "channel" else "command"][name] = f"+{name}"
        elif why != b"OK" and kind != "command":  # the key is only an example
            refused[kind][what] = rule
    for kind, (level, means) in MEANS.items():
        if refused[kind]:
            rules = " ".join(dict.fromkeys(refused[kind].values()))
            meaning = means.format(
                _all(kind, [*refused[kind]]), late=services.settings.safety_interval
            )
            yield Line(
                "rights", level, f"this Redis does not let its user {meaning}",
                f"ACL SETUSER {plain(user)} {rules}",
            )  # fmt: skip
    if not any(refused.values()):
        what = "every command of its scripts, every key"
        what += ", every queue's list" * services.store_is_broker
        yield Line("rights", OK, f"its user has all rights: {what}")


def _all(kind: str, names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if kind == "key" and len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN] if more else names) + more


def _calls(services: Services) -> Iterator[Call]:
    key = services.scripts[0].keys["due"]
    counts = {name: n for n, names in CALLED.items() for name in names.split()}
    given = {name: (key, *[key] * n) for name, n in counts.items()}
    for name, words in sorted({**given, "EVAL": ("", 0), "EVALSHA": ("", 0), "TIME": ()}.items()):
        yield Call("command", name, "", (name, *words))
    own = f"{{{services.settings.prefix}:*}}:*"
    for keys in (scripts.keys for scripts in services.entries.key_sets):
        for channel in keys.channels("doctor"):
            yield Call("channel", channel, f"&{own}", ("PUBLISH", channel, ""))
            yield Call("channel", channel, f"&{own}", ("SUBSCRIBE", channel))
        for name in keys.names:
            yield Call("key", name, f"~{own}", ("EVAL", "", 1, name))
    if services.store_is_broker:
        yield from _pushes(services)


def _pushes(services: Services) -> Iterator[Call]:
    """Yield the lists of the queues of the app and of waiting tasks.

    A queue's list without a priority comes first, and has the queue's name. In the others a
    separator follows the name, which a terminal cannot show. The first has it too if
    ``priority_steps`` does not begin with 0.
    """
    options = services.broker.options
    prefix = options.get("global_keyprefix", "")
    for queue in dict.fromkeys([*services.app.amqp.queues, *_waited_for(services)]):
        name = f"{prefix}{queue}"
        first, *others = [f"{prefix}{key}" for key in list_keys(queue, options)]
        yield Call("list", name, f"~{name}" + "*" * (first != name), ("EVAL", "", 1, first))
        for other in others:
            yield Call("priority", name, f"~{name}*", ("EVAL", "", 1, other))


def _waited_for(services: Services) -> list[str]:
    """Return the queues of waiting tasks, as far as this user may read them."""
    try:
        queues, _ = queue_counts(services, services.entries.pauses())
    except StoreError:
        return []
    return [queue.queue for queue in queues if queue.queue]
