"""What the user of the store's Redis may do, and whether the broker takes messages.

Rights are checked by ``ACL DRYRUN``, which runs nothing. Redis 7 and Valkey know the command, and
the user needs ``+acl|whoami +acl|dryrun``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ...core.errors import BrokerDown, InvalidSetting, StoreError
from ...core.handover.publishers import CONNECT_TIMEOUT, bounded, connect
from ...core.handover.relay import Link
from ...core.message.outgoing import list_keys
from ...core.servers.connection import NO_BROKER, Connection
from ...core.servers.risks import ERROR, MOVES, OK, WARNING, Level, Line, ask, check_broker, masters
from ...core.services import Services
from ...core.store.keys import Keys
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

TIMEOUT = 3.0  # seconds that the broker has for an answer
NOT_FOUND = 404  # RabbitMQ's code for a missing queue
_DOES = {
    "amqp": "it confirms messages",
    "redis": "it answers each push",
    "sqs": "it answers each message",
}
_ANOTHER = "use RabbitMQ or a separate Redis as broker"
_UNCHECKED = "celery_delayq cannot check whether it keeps messages"


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


def unusable(services: Services) -> Line | None:
    """Return the error if the app's broker cannot be determined; this opens no connection.

    The error does not quote the URL: the unreadable part may be in its password.

    Raises:
        InvalidSetting: its URL cannot be read, or its transport options lack something.
    """
    try:
        _ = services.broker
    except InvalidSetting:
        raise
    except Exception as error:  # from kombu or any transport
        why = plain(error) if isinstance(error, ImportError) else type(error).__name__
        return Line(
            "broker", ERROR,
            f"broker_url cannot be read, or its transport cannot be loaded: {why}",
            "write special characters of a password as %XX, and install the transport's library, "
            "such as: pip install 'celery[sqs]'",
        )  # fmt: skip
    return None


def broker(
    services: Services, store: Connection | None = None, *, in_cluster: bool = False
) -> Iterator[Line]:
    """Check whether the broker accepts messages; its queues, on AMQP; its place in a Cluster.

    Args:
        services: The app's services.
        store: A connection to the store, if it is there.
        in_cluster: Whether the store is in a Redis Cluster.
    """
    wrong = "" if store is None else _wrong(services, store, in_cluster=in_cluster)
    if wrong:
        yield Line("broker", ERROR, plain(wrong), _ANOTHER)
        return
    count = masters(store) if store and in_cluster and services.store_is_broker else 1
    if count > 1:
        yield Line("broker", WARNING, MOVES % count, _ANOTHER)
    elif services.store_is_broker:
        yield Line("broker", OK, "the store's own Redis: a script moves a task into its queue")
    else:
        yield from _other(services)


def _wrong(services: Services, store: Connection, *, in_cluster: bool) -> str:
    """Return why a broker in the store's Cluster cannot be one; empty if it is not there."""
    ours, place = services.membership, Keys(services.settings.prefix)
    if in_cluster and services.store_is_broker and not ours.tagged:
        return NO_BROKER
    try:
        if ours.redis is not None:
            check_broker(store.at(place.slot), ours.redis, place["meta"], tagged=ours.tagged)
    except StoreError as error:
        return error.why
    return ""


def _other(services: Services) -> Iterator[Line]:
    where = f"{services.broker.kind} on {services.broker.hosts}"
    link = Link(services.app.connection_for_write, timeout=TIMEOUT)
    try:
        link.prepare()
    except BrokerDown as error:
        found = f"{where} accepts no messages, so due tasks wait: {plain(error.why)}"
        yield Line("broker", ERROR, found, "check that it runs, and that broker_url is right")
        return
    finally:
        link.close()
    does = _DOES.get(services.broker.transport, _UNCHECKED)
    yield Line("broker", OK, f"{where} is up, and {does}")
    if services.broker.transport == "amqp":
        yield from _queues(services)


def _queues(services: Services) -> Iterator[Line]:
    """Check which of the app's queues exist and have a consumer."""
    connection = bounded(services.app.connection_for_write(), TIMEOUT, CONNECT_TIMEOUT)
    refused: dict[str, str] = {}
    try:
        connect(connection, CONNECT_TIMEOUT)
        found = {name: _consumers(connection, name, refused) for name in services.app.amqp.queues}
    except Exception as error:
        yield Line("queues", WARNING, f"they cannot be checked: {plain(error)}",
                   "check the rights of the broker's user")  # fmt: skip
        return
    finally:
        connection.collect()
    missing = [name for name in found if found[name] is None and name not in refused]
    idle = [name for name, consumers in found.items() if consumers == 0]
    for name, why in refused.items():
        yield Line(
            "queues", WARNING, f"{plain(name)} cannot be checked: {why}",
            "check the rights of the broker's user, and whether another connection has it "
            "exclusively",
        )  # fmt: skip
    if idle:
        sentence = f"no worker listens to {', '.join(map(plain, idle))}"
        yield Line(
            "queues", WARNING, sentence, "start a worker with -Q, or remove them from the app"
        )
    if missing:
        sentence = f"{', '.join(map(plain, missing))}: created by the first message"
        yield Line("queues", OK, sentence)
    if not idle and not missing and not refused:
        yield Line("queues", OK, f"{', '.join(map(plain, found))}: a worker listens to each")


def _consumers(connection: Any, name: str, refused: dict[str, str]) -> int | None:
    """Return a queue's number of consumers; ``None`` if it is missing, or the broker *refused*."""
    channel = connection.channel()
    try:
        consumers: int = channel.queue_declare(name, passive=True).consumer_count
    except connection.channel_errors as error:  # this error closed the channel
        if getattr(error, "code", None) != NOT_FOUND:
            refused[name] = plain(error)
        return None
    channel.close()
    return consumers
