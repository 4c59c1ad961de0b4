"""The scripts with a safeguard taken out, to see that the simulator misses it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from celery_delayq.servers import packed
from tests.store.support import ClockedScripts


@dataclass(frozen=True)
class Sabotage:
    """An edit of every script that has this text.

    Attributes:
        rules: Those that are broken without it.
        rates: How often which faults happen, so that few seeds are enough to find that out.
        keys: If it is about keys and tags, who has them; see `clients.planned`.
        pauses: Whether it is about pauses and late policies.
        messages: If it is about messages that become entries, whether they have names of their own.
        acks_first: Workers acknowledge what is not stored yet.
    """

    name: str
    old: str = ""
    new: str = ""
    rules: frozenset[str] = frozenset()
    rates: Mapping[str, float] | None = None
    keys: str = ""
    pauses: bool = False
    messages: str = ""
    acks_first: bool = False

    def scripts(self, connection: Any, keys: Any) -> ClockedScripts:
        return _Edited(connection, keys, self)


NONE = Sabotage("none")


def _of(name: str, old: str, new: str, *rules: str, **rates: float) -> Sabotage:
    named = {kind.replace("_", " "): rate for kind, rate in rates.items()}
    return Sabotage(name, old, new, frozenset(rules), named)


def _keyed(
    name: str, old: str, new: str, *rules: str, keys: str = "some", **rates: float
) -> Sabotage:
    return replace(_of(name, old, new, *rules, **rates), keys=keys)


def _paused(name: str, old: str, new: str, *rules: str, **rates: float) -> Sabotage:
    return replace(_of(name, old, new, *rules, **rates), pauses=True, keys="some")


def _taken(name: str, old: str, new: str, *rules: str) -> Sabotage:
    return replace(_of(name, old, new, *rules, **DELIVERED_AGAIN), messages="names")


DELIVERED_AGAIN = {"dead": 0.2, "taken_back": 0.5, "ack_lost": 0.2, "asleep": 0.05}
LATE = {"interrupted": 0.5, "overtaken": 0.9}
HELD = {**LATE, "keys": "held"}
BACK = {"keys": "one", "dead": 0.5}

SABOTAGES = (
    _of(
        "answers are not looked up",
        "if answer then return nil, {now_us, 'answer', answer} end",
        "",
        *("twice", "answer", "late", "unasked"),
        reset=0.5,
        doubled=0.5,
    ),
    _of(
        "answers are forgotten early",
        "age <= call.timeout",
        "age <= 0",
        *("twice", "answer", "order", "late", "unasked"),
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
        "    young[#young + 1], young[#young + 2] = id, changed",
        "",
        "order",
        interrupted=0.5,
        overtaken=0.9,
    ),
    _of(
        "the last change is not looked at",
        "is_overtaken(call, issued, changed_of(entry.record, entry.header_end))",
        "false",
        "order",
        interrupted=0.5,
        overtaken=0.9,
    ),
    _of(
        "a lease that ran out is not marked",
        "claim.attempts, claim.uncertain = claim.attempts + 1, true",
        "claim.attempts = claim.attempts + 1",
        *("answer", "copies"),
        dead=0.2,
    ),
    _of(
        "due times are not looked at",
        "local members = redis.call('ZRANGEBYSCORE', index, '-inf', whole(now),",
        "local members = redis.call('ZRANGEBYSCORE', index, '-inf', whole(now + 100),",
        "early",
    ),
    _keyed(
        "fences of keys are not looked at",
        "for _, generation in ipairs({fences, fences_old}) do",
        "for _, generation in ipairs({}) do",
        "order",
        **HELD,
    ),
    _keyed(
        "what has the key is not looked at",
        "step.asked[key] = not (named and is_newer(step, named))",
        "step.asked[key] = true",
        "order",
        **HELD,
    ),
    _keyed(
        "what waits under a key is not looked for",
        "local holder = named and named.state == 'waiting' and named.place ~= leased and named "
        "or nil",
        "local holder",
        *("unique", "kept", "answer"),
    ),
    _keyed(
        "what comes back takes the key from what waits",
        "if is_key_free(key, id, keys) then redis",
        "if true then redis",
        "unique",
        **BACK,
    ),
    _keyed(
        "what comes back leaves the key to what is leased",
        "if is_key_free(key, id, keys) then redis",
        "if not redis.call('HGET', keys.holders, key) then redis",
        "unique",
        **BACK,
    ),
    _keyed(
        "what leaves frees its key, whoever has it",
        "if one.key ~= leaving.kept_key and redis.call('HGET', keys.holders, one.key) == one.id",
        "if one.key ~= leaving.kept_key",
        "unique",
    ),
    _keyed(
        "what leaves does not free its key",
        "redis.call('HDEL', keys.holders, one.key)",
        "",
        "ghost",
    ),
    _keyed(
        "what leaves stays under its tags",
        "local tagged = leaving.tagged or {}\n  for",
        "local tagged = {}\n  for",
        "ghost",
    ),
    _keyed(
        "nobody revokes what was replaced",
        "if step.owes > 0 then owe(",
        "if step.owes > 2 then owe(",
        *("revoked", "answer"),
    ),
    _keyed(
        "a replacement forgets when the first was scheduled",
        "if since < created then created = since end",
        "",
        *("kept", "debounce"),
    ),
    _keyed(
        "no bound is kept of how long a task is put off",
        "if policy == 'debounce' and max_wait ~= '' then",
        "if false then",
        "debounce",
    ),
    _keyed(
        "a release is sure of what may have been delivered",
        "return entry.claim and entry.claim.uncertain and 'uncertain' or 'done'",
        "return 'done'",
        *("answer", "copies", "undone"),
        confirm_lost=0.7,
    ),
    _keyed(
        "what is released loses its key",
        "local function release(entry, body)\n",
        "local function release(entry, body)\n  redis.call('HDEL', holders, 'k')\n",
        "unique",
    ),
    _paused(
        "a pause is not looked at",
        "if pause.state == 'p' then return pause.lane end",
        "",
        "paused",
    ),
    replace(
        _paused(
            "a pause or a resume may come late",
            "if is_fenced(call, fenced_as, issued, fences, fences_old) then return stale(call) end",
            "",
            "order",
            **LATE,
        ),
        keys="",  # where all have some, it is far rarer
    ),
    _paused(
        "what is parked stays there",
        "keys.due or keys.relay, 'NX', whole(due), member)",
        "keys.relay or keys.relay, 'XX', 0, member)",
        *("check", "lost", "left over"),
    ),
    _paused(
        "what runs now is paused as well",
        "if not lanes.any or string.byte(record, header_end + 43) % (2 * RUN_NOW) >= RUN_NOW then",
        "if not lanes.any then",
        "paused",
    ),
    _paused(
        "nothing is too late",
        "if from and lanes.now > from + grace then",
        "if false then",
        "skipped",
    ),
    _paused(
        "what was paused is late for it",
        "if pause.late == '0' and (is_open or pause.state == 'b') then",
        "if false then",
        "lost",
    ),
    _paused(
        "nobody revokes what was skipped",
        "for _, one in ipairs(owes and skips.owed or {}) do",
        "for _, one in ipairs({}) do",
        "lost",
    ),
    _taken(
        "what became an entry is not marked",
        "if #marks > 0 then set_marks(",
        "if false then set_marks(",
        *("taken", "answer"),
    ),
    _taken(
        "a message is marked before it is an entry",
        "if is_taken then return TAKEN end",
        "if is_taken then return TAKEN end\n"
        "  if mark then marks[#marks + 1], marks[#marks + 2] = mark, whole(-call.now_us) end",
        *("answer", "lost"),
    ),
    _taken(
        "marks are not looked at by who writes",
        "if is_taken then return TAKEN end",
        "",
        *("taken", "answer"),
    ),
    _taken(
        "marks are not looked at by who runs",
        "if first then return math.max(first, 0) end",
        "",
        "taken",
    ),
    replace(
        _of(
            "a message that came for the first time is taken for new",
            ">= since\n",
            ">= (since > 0 and math.huge or 0)\n",
            *("taken", "answer"),
            taken_back=0.9,
            asleep=0.1,
            reply_lost=0.2,
        ),
        messages="no names",
    ),
    replace(
        _taken("a message is acknowledged before it is stored", "", "", "lost"),
        acks_first=True,
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
