"""The scripts with a safeguard taken out, to see that the simulator misses it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from celery_delayq.store.connection import packed
from tests.store.support import ClockedScripts


@dataclass(frozen=True)
class Sabotage:
    """An edit of every script that has this text.

    Attributes:
        rules: Those that are broken without it.
        rates: How often which faults happen, so that few seeds are enough to find that out.
    """

    name: str
    old: str = ""
    new: str = ""
    rules: frozenset[str] = frozenset()
    rates: Mapping[str, float] | None = None

    def scripts(self, connection: Any, keys: Any) -> ClockedScripts:
        return _Edited(connection, keys, self)


NONE = Sabotage("none")


def _of(name: str, old: str, new: str, *rules: str, **rates: float) -> Sabotage:
    named = {kind.replace("_", " "): rate for kind, rate in rates.items()}
    return Sabotage(name, old, new, frozenset(rules), named)


SABOTAGES = (
    _of(
        "answers are not looked up",
        "if answer then return nil, {now_us, 'answer', answer} end",
        "",
        *("twice", "answer"),
        reset=0.5,
        doubled=0.5,
    ),
    _of(
        "answers are forgotten early",
        "age <= call.timeout",
        "age <= 0",
        *("twice", "answer", "order"),
        reset=0.5,
        doubled=0.5,
    ),
    _of(
        "deadlines are not looked at",
        "if deadline < now_us then return nil, {now_us, 'late'} end",
        "",
        "late",
        held=0.3,
    ),
    _of(
        "fences are not looked at",
        "return since and is_overtaken(call, issued, number_in(since, 1, 7))",
        "return false",
        "order",
        interrupted=0.5,
        overtaken=0.9,
    ),
    _of(
        "a hand-over leaves no fence",
        "    young[#young + 1], young[#young + 2] = id, "
        "sub(record, header_end + 36, header_end + 42)",
        "",
        "order",
        interrupted=0.5,
        overtaken=0.9,
    ),
    _of(
        "the last change is not looked at",
        "is_overtaken(call, issued, changed_of(record, header_end))",
        "false",
        "order",
        interrupted=0.5,
        overtaken=0.9,
    ),
    _of(
        "a lease that ran out is not marked",
        "claim.attempts, claim.uncertain = claim.attempts + 1, true",
        "claim.attempts = claim.attempts + 1",
        "copies",
        dead=0.2,
    ),
    _of(
        "due times are not looked at",
        "local members = redis.call('ZRANGEBYSCORE', index, '-inf', whole(now),",
        "local members = redis.call('ZRANGEBYSCORE', index, '-inf', whole(now + 100),",
        "early",
    ),
)


class _Edited(ClockedScripts):
    def __init__(self, connection: Any, keys: Any, sabotage: Sabotage):
        super().__init__(connection, keys)
        self._sabotage = sabotage

    def _prepare(self, name: str) -> Any:
        call, sabotage = super()._prepare(name), self._sabotage
        if sabotage.old and sabotage.old in call.script.text:
            text = call.script.text.replace(sabotage.old, sabotage.new)
            sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
            script = replace(call.script, text=text, sha=sha)
            call = replace(call, script=script, by_sha=packed(["EVALSHA", sha]))
            self._calls[name] = call
        return call
