"""Where Redis's time of one call goes: making functions, Redis's commands, the script's own work.

Real calls are recorded: each script's keys and arguments, the commands that it runs, and how many
functions it makes. Then they are sent again and again, to a store as it was before, as

- the call itself;
- a script that does nothing, with the call's keys and arguments;
- the script's text up to its last line, which begins the work: it only makes functions;
- a flat script of the commands that the call ran, with the same arguments.

All of it is Redis's own time, so no round trip is in it.
"""

import itertools
import os
import re
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest import mock

import redis
from celery import Celery

from celery_delayq.core.store.keys import Keys
from celery_delayq.core.store.scripts import Script, Scripts
from tests.lab.benchmarks.filling import Template, fill, shuffled_future
from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.stats import Figures

CALLS = 100  # recorded of each operation; Redis collects Lua's garbage at every 50th
BLOCK = 10  # sent at once, and so few that in some turn nothing disturbs them
WAITING = 1000  # besides those that are touched
FAR = time.time() + 90_000
PAST = time.time() - 60
BEGINS = "return main()"  # a script's last line
NOTHING = "return 1"
META = Keys("delayq")["meta"]

# Its functions are fields of ARGV: some scripts have no room for another local.
NOTING = """
do
  local real = redis
  local function noted(run)
    return function(...)
      real.call('RPUSH', 'noted:commands', select('#', ...), ...)
      return run(...)
    end
  end
  ARGV.call, ARGV.pcall = noted(real.call), noted(real.pcall)
  ARGV.made = function() return real.call('INCR', 'noted:functions') end
end
"""
_NOTED = {
    "redis.call": "ARGV.call",
    "redis.pcall": "ARGV.pcall",
    "local function": "ARGV.made() local function",
    "function ": "ARGV.made() function ",
    "function": "ARGV.made() and function",  # a value
}
_TOKEN = re.compile(
    r"--\[\[.*?\]\]|--[^\n]*|'(?:\\.|[^'\\\n])*'"
    r"|\bredis\.p?call\b|\blocal function\b|\bfunction (?=\w)|\bfunction\b",
    re.DOTALL,
)

Run = Callable[[], object]


@dataclass(frozen=True)
class Step:
    """One call of a script, which can be sent again at any time."""

    script: Script
    keys: list[str]
    argv: list[Any]

    def tail(self) -> list[Any]:
        """Its number of keys, keys and arguments, with times as if it was made now."""
        now_us = int(time.time() * 1_000_000)
        # Ahead by less than Redis allows: a call that is sent before it must not overtake it.
        times = {"issued": now_us + 200_000, "began": now_us, "deadline": now_us + 3_000_000}
        times["last_ms"] = now_us // 1000 - 1
        names = itertools.chain(self.script.arguments, itertools.repeat(""))
        argv = [times.get(name, value) for name, value in zip(names, self.argv, strict=False)]
        return [len(self.keys), *self.keys, *argv]


@dataclass(frozen=True)
class Call:
    """A recorded call.

    Attributes:
        step: The measured one.
        before: Other scripts that were called before it, which are not measured.
        commands: Those that it ran, with their arguments.
        functions: How many functions it made.
    """

    step: Step
    before: list[Step]
    commands: list[list[bytes]]
    functions: int

    @property
    def words(self) -> list[Any]:
        """The arguments of the flat script of its commands."""
        return [0, *itertools.chain(*self.commands)]

    @property
    def flat(self) -> str:
        """The flat script of its commands."""
        places = itertools.count(1)
        lists = (", ".join(f"ARGV[{next(places)}]" for _ in words) for words in self.commands)
        return "".join(f"redis.call({words})\n" for words in lists)


def making(text: str) -> str:
    """A script that makes the functions that a script makes before it begins."""
    return text.rpartition(BEGINS)[0] + "return 0\n"


# By name: the script that is sent, and what it gets.
WAYS: dict[str, Callable[[Call], tuple[str, list[Any]]]] = {
    "whole": lambda call: (call.step.script.text, call.step.tail()),
    "flat": lambda call: (call.flat, call.words),
    "words": lambda call: (NOTHING, call.words),
    "made": lambda call: (making(call.step.script.text), call.step.tail()),
    "passed": lambda call: (NOTHING, call.step.tail()),
    "bare": lambda _: (NOTHING, [0]),
}
ON_STORE = ("whole", "flat")  # the others change nothing


def measure(lab: Lab) -> Figures:
    """Microseconds of each part, the lowest of some blocks; counts of functions and commands."""
    figures: Figures = {}
    bare = []
    for name, (script, prepare) in OPERATIONS.items():
        # A Redis of its own, as the garbage of Lua is collected the slower the more scripts it has.
        with lab.another_server() as server:
            client = server.client()
            _put_first(client)
            broker = "memory://" if name == "claim" else server.url()
            with lab.app(broker, delayq_url=server.url()) as app:
                ids = fill(server.socket, Template(app), shuffled_future(WAITING + CALLS + 1))
                run = prepare(app, iter(ids))
                run()
                stored = {key: client.dump(key) for key in client.scan_iter()}
                calls = record(client, script, run)
            lowest = timed(client, stored, calls, lab.scaled(100, 20))
            found = _parts(lowest) | _counts(client, calls)
        figures |= {f"{name}_{part}": value for part, value in found.items()}
        bare.append(lowest["bare"])
    # One for all: of so short a script a disturbance is a large part.
    figures["bare_us"] = least = min(bare)
    return figures | {f"{name}_times": figures[f"{name}_whole_us"] / least for name in OPERATIONS}


def _put_first(client: redis.Redis) -> None:
    """Let no process interrupt Redis, as far as this one has the right to."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, client.info("server")["process_id"], -15)


def _hand_over(app: Celery, _: Iterator[str]) -> Run:
    shard_steps = app.delayq.services.steps_by_shard()[0]
    return lambda: (app.noop.delay_until(PAST, 1, 2), shard_steps.hand_over())


def _claim(app: Celery, _: Iterator[str]) -> Run:
    shard_steps = app.delayq.services.steps_by_shard()[0]
    shard_steps.hand_over()
    return lambda: (app.noop.delay_until(PAST, 1, 2), shard_steps.claim(1))


def _replace(app: Celery, _: Iterator[str]) -> Run:
    under_key = {"key": "k", "conflict": "replace"}
    return lambda: app.delayq.schedule(app.noop.s(1, 2), at=FAR, **under_key)


# By name: the measured script, and what makes the function that does one operation.
OPERATIONS: dict[str, tuple[str, Callable[[Celery, Iterator[str]], Run]]] = {
    "schedule": ("schedule", lambda app, _: lambda: app.noop.delay_until(FAR, 1, 2)),
    "replace": ("schedule", _replace),
    "reschedule": ("reschedule", lambda app, ids: lambda: app.delayq.reschedule(next(ids), FAR)),
    "cancel": ("cancel", lambda app, ids: lambda: app.delayq.cancel(next(ids))),
    "get": ("find", lambda app, ids: lambda: app.delayq.get(next(ids))),
    "hand_over": ("hand_over", _hand_over),
    "claim": ("claim", _claim),
}


def record(client: redis.Redis, name: str, run: Run) -> list[Call]:
    """Do an operation some times, and return its calls of the script *name*."""
    calls: list[Call] = []
    before: list[Step] = []

    def call(scripts: Scripts, called: str, _until: float | None, arguments: dict[str, Any]) -> Any:
        script = scripts.script(called)
        keys = [scripts.keys[key] for key in script.keys]
        step = Step(script, keys, script.argv(arguments))
        reply = client.eval(noting(script.text), len(keys), *keys, *step.argv)
        commands, functions = _noted(client)
        if called == name:
            calls.append(Call(step, before.copy(), commands, functions))
            before.clear()
        else:
            before.append(step)
        return script.read(reply)

    with mock.patch.object(Scripts, "_call", call):
        for _ in range(CALLS):
            run()
    assert len(calls) == CALLS
    return calls


def noting(text: str) -> str:
    """A script that notes its commands, and counts the functions that it makes."""
    return NOTING + _TOKEN.sub(lambda found: _NOTED.get(found[0], found[0]), text)


def _noted(client: redis.Redis) -> tuple[list[list[bytes]], int]:
    words = iter(client.lrange("noted:commands", 0, -1))
    commands = [list(itertools.islice(words, int(count))) for count in words]
    functions = int(client.get("noted:functions") or 0)
    client.delete("noted:commands", "noted:functions")
    return commands, functions


def timed(
    client: redis.Redis, stored: dict[bytes, bytes], calls: list[Call], turns: int
) -> dict[str, float]:
    """Microseconds of Redis for a call in each way: of each block the lowest, and their mean."""
    blocks = [calls[start : start + BLOCK] for start in range(0, CALLS, BLOCK)]
    spent: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    for _ in range(turns):
        seen = {}
        for way in WAYS:
            if way in ON_STORE:
                _restore(client, stored)
            seen[way] = [_watched(client, way, block) for block in blocks]
        whole, flat = (sum(ran for _, ran in seen[way]) for way in ON_STORE)
        # On a busy machine Redis may get a call too late, and refuse it.
        if abs(whole - flat) <= CALLS / 10:
            for way, each in seen.items():
                spent[way].append([us for us, _ in each])
    assert len(spent["whole"]) >= turns / 2, "the calls are not those that were recorded"
    return {way: statistics.mean(map(min, *each)) for way, each in spent.items()}


def _watched(client: redis.Redis, way: str, calls: list[Call]) -> tuple[float, int]:
    """Send calls at once, so that Redis waits for no client in between.

    Returns:
        Microseconds of Redis for one of them, and how many commands it ran in all.
    """
    pipe = client.pipeline(transaction=False)
    for call in calls:
        for step in call.before if way in ON_STORE else ():
            pipe.eval(step.script.text, *step.tail())
        text, words = WAYS[way](call)
        pipe.execute_command("EVALSHA", _loaded(client, text), *words)
    client.config_resetstat()
    pipe.execute()
    seen = client.info("commandstats")
    return seen["cmdstat_evalsha"]["usec"] / len(calls), sum(one["calls"] for one in seen.values())


@cache
def _loaded(client: redis.Redis, text: str) -> str:
    return client.script_load(text)


def _restore(client: redis.Redis, stored: dict[bytes, bytes]) -> None:
    client.flushall()
    for key, value in stored.items():
        client.restore(key, 0, value)
    # A generation of calls that is old would end within these, which costs some of them more.
    client.hset(META, "turned", int(time.time() * 1000) - 1000)


def _parts(lowest: dict[str, float]) -> Figures:
    made = lowest["made"] - lowest["passed"]
    commands = lowest["flat"] - lowest["words"]
    return {
        "whole_us": lowest["whole"],
        "passed_us": lowest["passed"],
        "made_us": made,
        "commands_us": commands,
        "rest_us": lowest["whole"] - lowest["passed"] - made - commands,
    }


def _counts(client: redis.Redis, calls: list[Call]) -> Figures:
    step = calls[0].step
    client.eval(noting(making(step.script.text)), *step.tail())
    return {
        "functions": statistics.median(call.functions for call in calls),
        "first_functions": _noted(client)[1],
        "commands": statistics.median(len(call.commands) for call in calls),
    }
