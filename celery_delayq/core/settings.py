"""The settings: each declared once, here; validation, docs and CLI read these lines."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import InvalidSetting, UnknownSetting
from .text import without_secrets


@dataclass(frozen=True)
class Setting:
    """One setting: ``delayq_<name>`` in the app's configuration.

    ``shown`` makes a value safe for errors.
    """

    name: str
    default: Any
    unit: str
    expected: str
    says: str
    valid: Callable[[Any], bool]
    shown: Callable[[Any], Any] = lambda value: value

    @property
    def key(self) -> str:
        return f"delayq_{self.name}"

    def read(self, conf: Mapping[str, Any]) -> Any:
        value = conf.get(self.key, self.default)
        if not self.valid(value):
            raise InvalidSetting(written(conf, self.key), self.shown(value), self.expected)
        return value


def _number(low: float, high: float, *, whole: bool = False) -> Callable[[Any], bool]:
    kinds = (int,) if whole else (int, float)
    return lambda value: (
        isinstance(value, kinds) and not isinstance(value, bool) and low <= value <= high
    )


def _matches(pattern: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


MOST_SHARDS = 64
LONGEST_HISTORY = 10_000

REMEMBER = (3600, 1_000_000)  # seconds, tasks

_HOW_MANY, _HOW_LONG = _number(1, 10, whole=True), _number(0.01, 60)


def _is_wait(value: Any) -> bool:
    """Whether it is (replicas, seconds), optionally with "aof"; a list is fine, as in YAML."""
    if not isinstance(value, (tuple, list)) or len(value) <= 1:
        return False
    replicas, seconds, *others = value
    return _HOW_MANY(replicas) and _HOW_LONG(seconds) and others in ([], ["aof"])


_SECONDS, _TASKS = _number(60, 2_592_000), _number(10_000, 100_000_000, whole=True)


def _is_memory(value: Any) -> bool:
    """Whether it is (seconds, tasks); with fewer, a delivery would not recognise leftovers."""
    match value:
        case [seconds, tasks]:
            return _SECONDS(seconds) and _TASKS(tasks)
    return False


_UNDO_SECONDS, _UNDO_TASKS = _number(60, 2_592_000), _number(1, 100_000, whole=True)


def _is_undo(value: Any) -> bool:
    """Whether it is 0, or (seconds, tasks)."""
    match value:
        case [seconds, tasks]:
            return _UNDO_SECONDS(seconds) and _UNDO_TASKS(tasks)
    return value == 0 and not isinstance(value, bool)


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "enabled",
        True,
        "true or false",
        "true or false",
        "False: `DelayQ(app)` leaves Celery as it is, and its methods raise `SwitchedOff`. Celery "
        "ignores the options `delayq_…` of `apply_async`, so it sends such a task at once.",
        lambda value: isinstance(value, bool),
    ),
    Setting(
        "url",
        None,
        "URL",
        "a redis://, rediss://, redis+socket://, redis+cluster://, valkey://, valkeys:// or "
        "sentinel:// URL",
        "The Redis in which scheduled tasks wait; by default the broker, if it is a single Redis.",
        lambda value: value is None or (isinstance(value, str) and "://" in value),
        without_secrets,
    ),
    Setting(
        "transport_options",
        None,
        "mapping",
        "a mapping, or None",
        "Connection options for the Redis of `delayq_url`, as in `broker_transport_options`.",
        lambda value: value is None or isinstance(value, Mapping),
        # A wrong value may be a password.
        lambda value: value if isinstance(value, (int, float)) else type(value).__name__,
    ),
    Setting(
        "prefix",
        "delayq",
        "text",
        "1 to 64 letters, digits, dots, dashes or underscores",
        "Prefix of every key, so that several apps can share one database.",
        _matches(r"[A-Za-z0-9._-]{1,64}"),
    ),
    Setting(
        "batch_size",
        200,
        "tasks",
        "a whole number of tasks from 1 to 1000",
        "How many tasks one script call delivers at most.",
        _number(1, 1000, whole=True),
    ),
    Setting(
        "lease",
        30.0,
        "seconds",
        "a number of seconds from 1 to 3600",
        "How long a scanner may keep a task that it publishes to another broker.",
        _number(1, 3600),
    ),
    Setting(
        "safety_interval",
        5.0,
        "seconds",
        "a number of seconds from 0.1 to 300",
        "How often a scanner scans even if nothing wakes it; also its heartbeat. More than 100 "
        "scanners scan less often each, but at least every 28 seconds.",
        _number(0.1, 300),
    ),
    Setting(
        "timeout",
        5.0,
        "seconds",
        "a number of seconds from 0.1 to 60",
        "How long a call, or a slice of a bulk, may wait for the store's Redis, retries included.",
        _number(0.1, 60),
    ),
    Setting(
        "wait_replicas",
        None,
        "replicas and seconds",
        '(n, seconds) or (n, seconds, "aof"), with n from 1 to 10 and seconds from 0.01 to 60; or '
        "None",
        "(n, seconds): scheduling waits up to this long until n replicas have the task.",
        lambda value: value is None or _is_wait(value),
    ),
    Setting(
        "max_message",
        1_000_000,
        "bytes",
        "a whole number of bytes from 10000 to 100000000",
        "Largest message; a larger one raises `MessageTooLarge` at the call.",
        _number(10_000, 100_000_000, whole=True),
    ),
    Setting(
        "capture_eta",
        False,
        "true or false",
        "true or false",
        "Schedule every task sent with `eta` or `countdown`, without changes to the calling code.",
        lambda value: isinstance(value, bool),
    ),
    Setting(
        "min_delay",
        0.0,
        "seconds",
        "a number of seconds from 0 to 86400",
        "A captured `eta` nearer than this is left to Celery.",
        _number(0, 86400),
    ),
    Setting(
        "adopt_after",
        None,
        "seconds",
        "a number of seconds from 1 to 31536000, or None",
        "Workers move messages with an `eta` further ahead than this into the store.",
        lambda value: value is None or _number(1, 31_536_000)(value),
    ),
    Setting(
        "unknown_for",
        604_800,
        "seconds",
        "a number of seconds from 1 to 31536000, or None",
        "How long a task that [no worker knows](../operate/deploys.md#what-a-worker-does-not-know) "
        "goes back into the store, until it is dead; `None`: workers discard it, as Celery does.",
        lambda value: value is None or _number(1, 31_536_000)(value),
    ),
    Setting(
        "catch_up",
        None,
        "tasks a second",
        "a number of tasks a second from 0.1 to 1000000, or None",
        "How many overdue tasks are delivered a second at most; all at once by default.",
        lambda value: value is None or _number(0.1, 1_000_000)(value),
    ),
    Setting(
        "once",
        False,
        "true or false",
        "true or false",
        "Workers drop a relayed task if another copy of it has reached a worker before.",
        lambda value: isinstance(value, bool),
    ),
    Setting(
        "history",
        0,
        "events",
        f"a whole number of events from 0 to {LONGEST_HISTORY}",
        "How many events of tasks the [history](../reference/signals.md#who-did-what) keeps, and "
        "as many changes of many, and tasks of these; 0 keeps none.",
        _number(0, LONGEST_HISTORY, whole=True),
    ),
    Setting(
        "history_repeats",
        True,
        "true or false",
        "true or false",
        "False: omit an event that equals the previous one (same task and key, or id).",
        lambda value: isinstance(value, bool),
    ),
    Setting(
        "remember",
        REMEMBER,
        "seconds and tasks",
        "(seconds, tasks), with seconds from 60 to 2592000 and a whole number of tasks from 10000 "
        "to 100000000",
        "How long, and for how many tasks, [answers last](#how-long-answers-last).",
        _is_memory,
    ),
    Setting(
        "undo",
        0,
        "seconds and tasks",
        "(seconds, tasks), with seconds from 60 to 2592000 and a whole number of tasks from 1 to "
        "100000; or 0",
        "How long, and for how many tasks, an [undo](../guide/change.md#undo) can bring back what "
        "was cancelled, or moved by a change of many; 0 keeps nothing. If processes differ, the "
        "largest one counts.",
        _is_undo,
    ),
    Setting(
        "beat",
        False,
        "true or false",
        "true or false",
        "Workers make rules of `beat_schedule` and `add_periodic_task`, [without a beat "
        "process](../coming-from/from-beat.md); needs `celery_delayq[rules]`.",
        lambda value: isinstance(value, bool),
    ),
    Setting(
        "metrics_port",
        None,
        "port",
        "a whole number from 1 to 65535, or None",
        "The port on which a scanner's process serves metrics; needs `celery_delayq[metrics]`.",
        lambda value: value is None or _number(1, 65535, whole=True)(value),
    ),
    Setting(
        "metrics_host",
        "127.0.0.1",
        "address",
        "an address, such as 0.0.0.0 for all of this machine's",
        "Address on which it serves them. The default allows local connections only.",
        lambda value: isinstance(value, str) and bool(value.strip()),
    ),
    Setting(
        "shards",
        1,
        "shards",
        f"a whole number of shards from 1 to {MOST_SHARDS}",
        "Over how many sets of keys a new store spreads tasks, for the nodes of a Redis Cluster; "
        "an existing store [has its own number](../operate/cluster.md#another-number-of-shards).",
        _number(1, MOST_SHARDS, whole=True),
    ),
)


@dataclass(frozen=True)
class Settings:
    """The settings of one app, checked."""

    enabled: bool
    url: str | None = field(repr=False)
    transport_options: Mapping[str, Any] | None = field(repr=False)
    prefix: str
    batch_size: int
    lease: float
    safety_interval: float
    timeout: float
    wait_replicas: Sequence[Any] | None
    max_message: int
    capture_eta: bool
    min_delay: float
    adopt_after: float | None
    unknown_for: float | None
    catch_up: float | None
    once: bool
    history: int
    history_repeats: bool
    remember: Sequence[Any]
    undo: Sequence[Any] | int
    beat: bool
    metrics_port: int | None
    metrics_host: str
    shards: int

    @classmethod
    def load(cls, conf: Mapping[str, Any]) -> Settings:
        """Read and check every setting.

        Raises:
            InvalidSetting: a value is out of range; names setting, value and range.
            UnknownSetting: no setting has that name; names the nearest one.
        """
        _refuse_unknown(conf)
        return cls(**{setting.name: setting.read(conf) for setting in SETTINGS})


def _refuse_unknown(conf: Mapping[str, Any]) -> None:
    known = {setting.key: setting for setting in SETTINGS}
    namespace = (getattr(conf, "prefix", None) or "").lower()
    for name in conf:
        inside = name.lower().removeprefix(namespace)
        key = inside.removeprefix("celery_")
        if not key.startswith("delayq_"):
            continue
        is_read = name in (key, _in_namespace(conf, key))
        if key not in known:
            # DELAYQ_REDIS_HOST may be a constant of the program, from which it makes a setting.
            if is_read or key != name.lower():
                (nearest,) = difflib.get_close_matches(key, known, n=1, cutoff=0)
                raise UnknownSetting(name, nearest if name == key else _in_namespace(conf, nearest))
        # So may DELAYQ_URL be, if the setting is there too, or is to keep its default.
        elif not is_read and key not in conf and conf[name] != known[key].default:
            raise UnknownSetting(name, _in_namespace(conf, key))


def written(conf: Mapping[str, Any], key: str) -> str:
    """Return the name by which the value of *key* was given, or would be."""
    name = _in_namespace(conf, key)
    # In Celery's order: a name set on the app comes before a module's.
    for mapping in getattr(conf, "maps", ()):
        if name in mapping:
            return name
        if key in mapping:
            return key
    return name


def _in_namespace(conf: Mapping[str, Any], key: str) -> str:
    namespace = getattr(conf, "prefix", None) or ""
    name = namespace + key
    return name.upper() if namespace.isupper() else name.lower()
