"""The time of the hand-over's script: of the barest one, and of each duty on top of it.

Redis's own time per entry, so no round trip is in it. The package's script does more than the
barest one:

- It joins the message from a template and the differences, so a waiting task is a third as large.
- It leaves a trace of each entry that left, so a late cancel gets a true answer.
- It looks before it writes, serves several lists, and keeps scanners' heartbeats.
"""

from collections.abc import Callable

import redis

from tests.lab.benchmarks import raw
from tests.lab.benchmarks.apps import QUEUE
from tests.lab.benchmarks.filling import Template, fill, shuffled_past
from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.stats import Figures

# As raw.MOVE, on the package's own records, whose layout ``prelude/record.lua`` describes.
JOINED = """
local due, messages, templates, handed, list = unpack(KEYS)
local time = redis.call('TIME')
local now = string.format('%.0f', math.floor(time[1] * 1000 + time[2] / 1000))
local members = redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, ARGV[1])
if #members == 0 then return 0 end
local ids, line, texts, traces = {}, {}, {}, {}
for at, member in ipairs(members) do ids[at] = string.sub(member, 7) end
local template = redis.call('HVALS', templates)[1]
for text in string.gmatch(template, '[^\\n]+') do line[#line + 1] = text end
local records = redis.call('HMGET', messages, unpack(ids))
local colon = string.find(records[1], ':', 3, true)
local header_end = colon + string.sub(records[1], 3, colon - 1)
for at, record in ipairs(records) do
  local id, due_ms = ids[at], string.sub(record, header_end + 7, header_end + 19)
  local _, parent, expires, args, kwargs, body_at =
    string.match(record, '^(.-)\\n(.-)\\n(.-)\\n(.-)\\n(.-)\\n()', header_end + 69)
  texts[at] = line[1] .. id .. line[2] .. id
    .. string.sub(record, header_end + 20, header_end + 35) .. line[3]
    .. string.sub(record, body_at) .. line[4] .. id .. line[5] .. '"' .. id .. '"' .. line[6]
    .. parent .. line[7] .. expires .. line[8] .. args .. line[9] .. kwargs .. line[10] .. due_ms
    .. '}}'
  traces[at * 2 - 1], traces[at * 2] = id, now
end
if ARGV[2] == '1' then redis.call('HSET', handed, unpack(traces)) end
redis.call('LPUSH', list, unpack(texts))
redis.call('HDEL', messages, unpack(ids))
redis.call('ZREMRANGEBYRANK', due, 0, #ids - 1)
return #ids
"""


def measure(lab: Lab) -> Figures:
    """Microseconds of Redis for each entry that is handed over, by four scripts."""
    count = lab.scaled(100_000, 30_000)
    return {
        "bare_us": _bare(lab, count),
        "joined_us": _joined(lab, count, trace=False),
        "traced_us": _joined(lab, count, trace=True),
        "whole_us": _whole(lab, count),
    }


def _bare(lab: Lab, count: int) -> float:
    client = lab.server.client()
    with lab.app(lab.server.url()) as app:
        raw.fill(client, app, shuffled_past(count))
        return script_us(client, lambda: raw.move_all(client)) / count


def _joined(lab: Lab, count: int, *, trace: bool) -> float:
    server = lab.server
    client = server.client()
    script = client.register_script(JOINED)
    names = ("due", "records", "templates", "tombstones")

    def move_all() -> None:
        while script(keys=[*keys, QUEUE], args=[raw.BATCH, int(trace)]):
            pass

    with lab.app(server.url()) as app:
        fill(server.socket, Template(app), shuffled_past(count))
        keys = [app.delayq.services.scripts[0].keys[name] for name in names]
        return script_us(client, move_all) / count


def _whole(lab: Lab, count: int) -> float:
    server = lab.server
    with lab.app(server.url()) as app:
        fill(server.socket, Template(app), shuffled_past(count))
        shard_steps = app.delayq.services.steps_by_shard()[0]

        def move_all() -> None:
            while shard_steps.hand_over().handed_over:
                pass

        used = script_us(server.client(), move_all)
        shard_steps.close()
        return used / count


def script_us(client: redis.Redis, run: Callable[[], object]) -> float:
    """Redis's own time for the script calls of *run*."""
    client.config_resetstat()
    run()
    calls = client.info("commandstats")
    return sum(calls[name]["usec"] for name in ("cmdstat_evalsha", "cmdstat_eval") if name in calls)
