"""Copies of the package that represent another version: a few words in them are changed."""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import celery_delayq

PACKAGE = Path(celery_delayq.__file__).parent
HERE = Path(__file__).parent

Changes = Mapping[str, Mapping[str, str]]

#: It reads records and rules of format 2 as well, and writes them if the store may have them:
#: messages stand backwards, behind another letter, and plans behind another number.
OTHER_RECORDS: Changes = {
    "core/store/lua/prelude/record.lua": {
        "local FORMAT = '1'": "local FORMAT = '2'",
        "(form == 73 or form == 84)": "(form == 73 or form == 84 or form == 75 or form == 86)",
        "[0-O]............[IT]$": "[0-O]............[ITKV]$",
        "local function record_of(header, order, due, created, changed, body)\n": """\
local function turned(text, from)
  local last = ends_in_extras(text, from) and extras_start(text, from) - 1 or #text
  local first = from + (template_of(text, from) and DIFFERING or MESSAGE)
  local letter = ({I = 'K', K = 'I', T = 'V', V = 'T'})[sub(text, from + FORM, from + FORM)]
  return sub(text, 1, from + FORM - 1) .. letter .. sub(text, from + MESSAGE, first - 1)
    .. string.reverse(sub(text, first, last)) .. sub(text, last + 1)
end

local function record_of(header, order, due, created, changed, body)
  if sub(header, 1, 1) == '1' and redis.call('HGET', keys.meta, 'format') == '2' then
    header, body = '2' .. sub(header, 2), turned(body, 1 - FLAGS)
  end
""",
    },
    "core/store/lua/prelude/message.lua": {
        "local function message_of(record, header_end, id, line, last)\n": """\
local function message_of(record, header_end, id, line, last)
  if sub(record, 1, 1) == '2' then record = turned(record, header_end) end
""",
        "  local at\n  if is_beyond(record) then return nil end\n": """\
  local at
  if sub(record, 1, 1) == '2' then record = turned(record, header_end) end
""",
    },
    "core/store/lua/rule.lua": {
        "  local row = is_given and cjson.decode(given)\n": """\
  local row = is_given and cjson.decode(given)
  if row and sub(row.plan, 1, 3) == '[1,' and redis.call('HGET', keys.meta, 'format') == '2' then
    row.plan = '[2,' .. string.reverse(sub(row.plan, 4))
  end
""",
    },
    "contrib/rules/plan.py": {
        "        made, signature, timing": """\
        if text.startswith("[2,"):
            text = "[1," + text[3:][::-1]
        made, signature, timing""",
    },
    "core/store/record.py": {
        'FORMAT = "1"': 'FORMAT = "2"',
        "(FORMAT.encode(), kind": '(b"1", kind',
        'self._part(FORM, MESSAGE) == b"T"': 'self._part(FORM, MESSAGE) in (b"T", b"V")',
        "        if not self._shares:\n": """\
        if self.text[:1] == b"2":
            return self.turned.message(task_id, template)
        if not self._shares:
""",
        "    def _expiry(self": """\
    @property
    def turned(self) -> Record:
        start, end = self.header_end + FORM, self._end
        first = start + 1 + (NAME_BYTES if self._shares else 0)
        letter = {b"K": b"I", b"V": b"T"}[self.text[start : start + 1]]
        front, back = b"1" + self.text[1:start] + letter, self.text[end:]
        values = self.text[start + 1 : first] + self.text[first:end][::-1]
        return Record(front + values + back, self.header_end)

    def _expiry(self""",
        "        start = self.header_end + MESSAGE + NAME_BYTES\n": """\
        if self.text[:1] == b"2":
            return self.turned._differing
        start = self.header_end + MESSAGE + NAME_BYTES
""",
    },
}
#: It adds a colour to the extras if a call has it as a tag, and shows it as the last tag.
ADDED_DATA: Changes = {
    "core/scheduling/options.py": {
        "        tags=value_of(TAGS, chosen, ()),\n": (
            "        tags=tuple(t for t in value_of(TAGS, chosen, ()) if t[:7] != 'colour:'),\n"
            "        others=(b'\\xffcolour:blue',) * ('colour:blue' in chosen.get(TAGS, ())),\n"
        ),
    },
    "core/store/record.py": {
        "    @property\n    def unique_ms": """\
    @property
    def colour(self) -> str:
        mine = [part[1:].decode() for part in self.others if part.startswith(HELD + b"colour:")]
        return "".join(mine)

    @property
    def unique_ms""",
    },
    "core/tasks/scheduled_task.py": {
        "for name in SHOWN},": (
            "for name in SHOWN} | {'tags': (*entry.extras.tags, entry.extras.colour)},"
        )
    },
}
#: It has another layout of keys.
OTHER_LAYOUT: Changes = {"core/store/keys.py": {'SCHEMA = "1"': 'SCHEMA = "2"'}}


def make(folder: Path, changes: Changes) -> Path:
    """Make a copy in *folder*, which must come first on the path; return the folder."""
    copy = folder / "celery_delayq"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, words in changes.items():
        text = (copy / name).read_text("utf-8")
        for ours, theirs in words.items():
            assert text.count(ours) == 1, f"{name} has {ours!r} no more, or more than once"
            text = text.replace(ours, theirs)
        (copy / name).write_text(text, "utf-8")
    return folder


def command(script: str, *words: str) -> list[str]:
    return [sys.executable, str(HERE / script), *words]


def environment(copy: Path | None) -> dict[str, str]:
    """The environment of a process with this copy, or with the package itself."""
    first = PACKAGE.parent if copy is None else copy
    return {"PYTHONPATH": f"{first}{os.pathsep}{PACKAGE.parent}"}
