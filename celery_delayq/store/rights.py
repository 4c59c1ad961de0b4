"""What a Redis user may do of what the store needs, found out by trying.

    commands   each that a script calls, once, on scratch keys; what it writes it removes
    keys       a script that is given the names of the real ones, and touches none
    channels   PUBLISH and SUBSCRIBE at the channel of a scanner that nobody is

Redis asks for the right to a command before it asks for the right to its keys, and to both before
it does anything. So nothing that is real is touched, and no scanner hears of it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import redis

from ..errors import StoreError
from ..servers import Connection, packed, translated
from .keys import Keys
from .scripts import load

# How each command of a script is called in a trial; LIST, HASH and ZSET are scratch keys.
_CALLS = {
    "DEL": "HASH",
    "UNLINK": "ZSET",
    "GET": "LIST",
    "SET": "LIST x XX",
    "TIME": "",
    "RENAME": "LIST HASH",
    "HSET": "HASH f 0",
    "HGET": "HASH f",
    "HMGET": "HASH f",
    "HINCRBY": "HASH f 1",
    "HLEN": "HASH",
    "HSTRLEN": "HASH f",
    "HEXISTS": "HASH f",
    "HSCAN": "HASH 0",
    "HDEL": "HASH f",
    "ZADD": "ZSET 0 m",
    "ZCARD": "ZSET",
    "ZCOUNT": "ZSET 0 1",
    "ZSCORE": "ZSET m",
    "ZSCAN": "ZSET 0",
    "ZRANGE": "ZSET 0 0",
    "ZREVRANGE": "ZSET 0 0",
    "ZRANGEBYLEX": "ZSET - +",
    "ZRANGEBYSCORE": "ZSET 0 1",
    "ZLEXCOUNT": "ZSET - +",
    "ZREM": "ZSET m",
    "ZREMRANGEBYRANK": "ZSET 0 0",
    "LPUSH": "LIST x",
    "LRANGE": "LIST 0 0",
    "LTRIM": "LIST 1 0",
    "PUBLISH": "CHANNEL x",
}
_CALLED = re.compile(r"redis\.p?call\('(\w+)'")
_REMOVE = ("DEL", "UNLINK")

# ARGV: of each call the number of its words, and these. Returns name, error, name, error, ...
# What one of them left behind goes at the end, by whichever command may remove it.
_TRIAL = """
local at, refused = 1, {}
while at <= #ARGV do
  local words = {}
  for i = 1, tonumber(ARGV[at]) do words[i] = ARGV[at + i] end
  at = at + #words + 1
  local answer = redis.pcall(unpack(words))
  if type(answer) == 'table' and answer.err then
    refused[#refused + 1] = words[1]
    refused[#refused + 1] = answer.err
  end
end
for _, key in ipairs(KEYS) do
  redis.pcall('UNLINK', key)
  redis.pcall('DEL', key)
end
return refused
"""
_NOTHING = "return 1"
_SHA = hashlib.sha1(_NOTHING.encode(), usedforsecurity=False).hexdigest()

# What is said of a right, directly and inside of a script, by each version of Redis and Valkey.
_COMMAND = re.compile(
    r"(?i)no permissions to run the '(?P<run>[\w|]+)'|can't run this command"
    r"|unknown command ['`](?P<send>\w+)|unknown (\w+ )?command"  # left out by who hosts it
)
_KEY = re.compile(r"(?i)permissions to access (a key|one of the keys)|access at least one of the k")
_CHANNEL = re.compile(r"(?i)permissions to access (a channel|one of the ch)|publish to the channel")


def called() -> list[str]:
    """The commands that scripts call."""
    return sorted({name for one in load().values() for name in _CALLED.findall(one.text)})


@dataclass
class Rights:
    """What a user may not do.

    Attributes:
        commands: Commands, as ACL names them: ``zadd``.
        keys: Names of keys.
        channels: Names of channels.
        untried: Why other commands were not tried; or empty.
    """

    commands: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    channels: list[str] = field(default_factory=list)
    untried: str = ""


def rights(connection: Connection, shards: Sequence[Keys], lists: Sequence[str]) -> Rights:
    """Find out what is missing.

    Args:
        connection: As the user in question.
        shards: The store's keys.
        lists: Names of the lists that are pushed to.

    Raises:
        StoreUnavailable: no answer came in time.
        StoreError: Redis refuses for a reason that is no missing right.
    """
    return _Trial(connection, shards).all(lists)


class _Trial:
    def __init__(self, connection: Connection, shards: Sequence[Keys]) -> None:
        name = f"doctor-{os.urandom(4).hex()}"
        self._connection = connection
        self._shards = shards
        # No app has such a prefix, and no scanner such a name.
        self._tag = f"{{{shards[0].prefix}:{name}:0}}"
        self._scratch = {kind: f"{self._tag}:{kind.lower()}" for kind in ("LIST", "HASH", "ZSET")}
        self._channels = [one for keys in shards for one in keys.channels(name)]
        self._found = Rights()

    def all(self, lists: Sequence[str]) -> Rights:
        found = self._found
        self._note("eval", self._why_not("EVAL", _NOTHING, 0))
        if found.commands:
            # What opens a connection is refused at the first command, under a name of its own.
            is_open = found.commands == ["eval"]
            found.untried = "no script can run" if is_open else "no connection can be opened"
            return found
        self._note("evalsha", self._why_not("EVALSHA", _SHA, 0))
        self._note("subscribe", self._why_not_subscribe())
        self._try_keys(lists)
        self._try_commands()
        return found

    def _try_keys(self, lists: Sequence[str]) -> None:
        """Name the real keys to a script that does nothing with them."""
        for keys in [*(shard.names for shard in self._shards), [*lists]]:
            if self._why_not("EVAL", _NOTHING, len(keys), *keys):
                one_by_one = ((key, self._why_not("EVAL", _NOTHING, 1, key)) for key in keys)
                self._found.keys += [key for key, why in one_by_one if why]

    def _try_commands(self) -> None:
        """Call what scripts call, those first by which the rest is removed."""
        found = self._found
        if self._why_not("EVAL", _NOTHING, 1, self._scratch["LIST"]):
            found.untried = f"no key that begins with {self._tag} may be used"
            return
        self._run(_REMOVE)
        if {name.lower() for name in _REMOVE} <= {*found.commands}:
            found.untried = "what they write in a trial could not be removed"
        else:
            self._run([name for name in called() if name not in _REMOVE])

    def _run(self, names: Iterable[str]) -> None:
        values, words = {**self._scratch, "CHANNEL": self._channels[-1]}, list[str | int]()
        for name in names:
            call = [name, *(values.get(word, word) for word in _CALLS[name].split())]
            words += [len(call), *call]
        keys = self._scratch.values()
        refused = self._send("EVAL", _TRIAL, len(keys), *keys, *words)
        for name, error in zip(refused[::2], refused[1::2], strict=True):
            self._note(name.decode().lower(), error.decode(errors="replace"))

    def _note(self, command: str, error: str) -> None:
        """Take note of what an error means for *command*; other errors are no matter of rights."""
        named = _COMMAND.search(error)
        if named:
            name = named["run"] or named["send"] or command
            self._found.commands.append(name.lower())
        elif _CHANNEL.search(error):
            self._found.channels += {*self._channels} - {*self._found.channels}

    def _why_not_subscribe(self) -> str:
        with translated("doctor"):
            connection = self._connection.dedicated()
            try:
                connection.send_command("SUBSCRIBE", *self._channels)
                connection.read_response()
            except redis.exceptions.ResponseError as error:
                if not _is_refusal(error):
                    raise
                return str(error)
            finally:
                connection.disconnect()
        return ""

    def _why_not(self, *command: str | int) -> str:
        """Why Redis refuses a command for want of a right; empty where it does not.

        Raises:
            StoreError: it refuses it for another reason.
        """
        try:
            self._send(*command)
        except StoreError as error:
            if _is_refusal(error.__cause__):
                return error.why
            raise
        return ""

    def _send(self, *command: str | int) -> Any:
        return self._connection.execute("doctor", packed(command))


def _is_refusal(error: BaseException | None) -> bool:
    """Whether it says that a command is not there, or not for this user."""
    is_right = isinstance(error, redis.exceptions.NoPermissionError)
    return is_right or _COMMAND.search(str(error)) is not None
