"""A linter of the Lua scripts: ``python -m tests.lint_lua``.

Above all it compares each script's header with its body, as callers rely on the header. A check
asserts, of a `script`, of a `file` (a script or a part of the prelude), or of all of them.
"""

import inspect
import re
import sys
from collections import Counter

from celery_delayq.core.store.keys import KEYS
from celery_delayq.core.store.scripts import Code, arguments_of, definitions_of, load, prelude
from tests.support import lua_files
from tests.support.lua_chunk import compiled

SCRIPTS = {f"{name}.lua": text for name, text in lua_files.SCRIPTS.items()}
PRELUDE = {f"prelude/{name}.lua": text for name, text in lua_files.PRELUDE.items()}
TEXTS = SCRIPTS | PRELUDE
# Of each function. Lua allows 200 and 60; the rest is room for the next feature.
MOST_LOCALS, MOST_OUTER = 150, 45
CLOCK, LEFT = "prelude/record.lua", "prelude/left.lua"
WIDEST = 125  # columns
FAMILY = {"ZSET": ("Z",), "HASH": ("H",), "LIST": ("L",)}

LINE = re.compile(r"^(text|number|flag|filter|rows)(\.\.\.)?\s+(\w+)(.*)$", re.MULTILINE)
REPLY = re.compile(r"^reply +(.+(?:\n {9}.+)*)", re.MULTILINE)
KEY = re.compile(r"\bkeys\.(\w+)")
GLOBALS = {
    "ARGV", "KEYS", "cjson", "ipairs", "math", "pairs", "pcall", "redis", "select", "string",
    "table", "tonumber", "type", "unpack",
}  # fmt: skip
CALL = re.compile(r"redis\.p?call\('(\w+)',\s*keys\.(\w+)")


def header(name):
    return TEXTS[name].partition("]]\n")[0]


def declared(name):
    """The arguments that a header names, in order."""
    return [word for _, _, word, _ in LINE.findall(header(name))]


def code(name):
    return without_comments(TEXTS[name])


def whole(name):
    """The script as it is sent, with the parts of the prelude that it uses."""
    return load()[name.removesuffix(".lua")].text


def without_comments(text):
    return Code(text).with_names({})


def without_strings(text):
    return re.sub(r"'[^'\n]*'", "''", text)


def unknown_names(text):
    """Names that are used where they are not declared, or above that."""
    return {name for one in compiled(text).all() for name in one.globals} - GLOBALS


def too_large(text):
    """Functions with too many locals, or outer ones: the line, and the numbers of both."""
    return {
        (one.line, one.locals, len(one.outer))
        for one in compiled(text).all()
        if one.locals > MOST_LOCALS or len(one.outer) > MOST_OUTER
    }


def taken_names(text, known, own=()):
    """Known names that a text declares, except once those of its own, or assigns."""
    functions = [*compiled(text).all()]
    again = Counter(name for one in functions for name in one.named) - Counter(own)
    assigned = {name for one in functions for name in one.assigned}
    at_top = re.findall(r"^(\w+) *=(?!=)", text, re.MULTILINE)
    return {*again, *assigned, *at_top} & {*known}


def unused_names(text):
    """Definitions of the prelude that a script has, and does not use."""
    whole = compiled(text)
    made = [whole, *(one for one in whole.inside if "made" in one.named)]
    used = {"main", "made", *re.findall(r"\brare\(\)\.(\w+)", text)}
    used.update(name for one in whole.all() for name in one.outer)
    return {name for one in made for name in one.named} - used


def unseen_locals(text):
    """Locals of a file of the prelude that the loader does not see, as b in `local a, b`."""
    return {*compiled(text).named} - {one.name for one in definitions_of(text)}


def is_whole(text):
    """Whether the loader has all lines of a file of the prelude."""
    seen = "".join(one.code.with_names({}) for one in definitions_of(text))
    return seen.split() == without_comments(text).split()


def built_constants(text):
    """Constants whose value the loader cannot write in their place."""
    return {one.name for one in definitions_of(text) if one.name.isupper() and not one.literal}


def rare_parts(text):
    return len(re.findall(r"^-- Rare\b", text, re.MULTILINE))


def check_a_header_says_what_the_script_does_under_its_own_name(script):
    first = TEXTS[script].splitlines()[0]
    assert re.fullmatch(rf"--\[\[ {script.removesuffix('.lua')}: .+\.", first)


def check_a_header_has_every_section(script):
    for section in ("Returns", "Cost", "Keeps"):
        assert re.search(rf"^{section} +\S", header(script), re.MULTILINE), section


def check_a_changing_script_is_one_call(script):
    is_change = re.search(r"^change ", header(script), re.MULTILINE) is not None
    assert is_change == bool(
        re.search(r"^return change\(request, function", code(script), re.MULTILINE)
    )


def check_only_the_last_argument_takes_the_rest(script):
    kinds = [(kind, bool(dots)) for kind, dots, *_ in LINE.findall(header(script))]
    assert not [kind for kind, dots in kinds[:-1] if dots or kind == "rows"]
    assert ("rows", False) not in kinds


def check_every_field_of_a_row_is_declared_and_used(script):
    if "rows..." not in header(script):
        return
    fields = re.findall(r"(\w+) = ARGV\[at \+ \d+\]", arguments_of(header(script)))
    assert fields
    assert [field for field in fields if not re.search(rf"\.{field}\b", whole(script))] == []


def check_keys_are_called_by_the_names_of_the_layout(file):
    assert set(KEY.findall(code(file))) - KEYS.keys() == set()
    assert not re.search(r"\bKEYS\b", code(file))


def check_no_position_is_named(file):
    assert not re.search(r"\bARGV\b", code(file))


def check_the_parts_of_the_reply_have_names_of_their_own(script):
    for names in REPLY.findall(header(script)):
        parts = [part.split()[0] for part in names.split(",")]
        assert len(parts) == len(set(parts)), parts
        assert all(re.fullmatch(r"[a-z_]+", part) for part in parts), parts


def check_every_declared_name_is_used(script):
    words = set(re.findall(r"\w+", without_strings(code(script))))
    assert [word for word in declared(script) if word not in words] == []


def check_a_key_meets_only_commands_of_its_type(file):
    for command, key in CALL.findall(code(file)):
        family = FAMILY.get(KEYS[key].split()[0])
        if family and command not in {"RENAME", "DEL", "UNLINK", "EXISTS", "PEXPIRE"}:
            assert command.startswith(family), f"{command} {key}"


def check_every_argument_has_its_range_or_meaning(script):
    for _, _, word, says in LINE.findall(header(script)):
        assert says.strip(), word


def check_every_name_is_declared_above(script):
    assert not (found := unknown_names(whole(script))), found


def check_no_definition_is_there_for_nothing(script):
    assert not (found := unused_names(whole(script))), found


def check_every_function_has_room(script):
    assert not (found := too_large(whole(script))), found


# The loader writes other words for such a name wherever it finds it, and knows no scopes.
def check_a_name_of_the_prelude_means_one_thing(file):
    own = [one.name for one in definitions_of(TEXTS[file])] if file in PRELUDE else []
    text = arguments_of(header(file)) + TEXTS[file] if file in SCRIPTS else TEXTS[file]
    assert not (found := taken_names(text, {*prelude().definitions, "keys", "rare"}, own)), found


def check_a_file_of_the_prelude_has_one_rare_part_and_a_script_none(file):
    assert rare_parts(TEXTS[file]) <= (file in PRELUDE)


def check_no_script_decodes_a_body(file):
    rows = file in {"rule.lua", "prelude/rules.lua"}  # these are JSON, and hold no body
    assert not re.search(r"\b(cmsgpack|struct|loadstring)\b", code(file))
    assert rows or "cjson" not in code(file)


# The loader sees texts between them only: names in others would count as code.
def check_texts_have_single_quotes(file):
    assert not re.search(r"\"|\[=*\[", without_strings(code(file)))


def check_no_line_is_too_wide(file):
    wide = [at for at, line in enumerate(TEXTS[file].splitlines(), 1) if len(line) > WIDEST]
    assert not wide, wide


def check_time_is_asked_for_in_one_place():
    assert [name for name in TEXTS for _ in re.findall("'TIME'", code(name))] == [CLOCK]


def check_entries_leave_in_one_place():
    removal = r"'HDEL', keys\.records\b"
    assert [name for name in TEXTS for _ in re.findall(removal, code(name))] == [LEFT]


def check_the_loader_sees_each_definition_of_the_prelude_once():
    found = [one.name for name in PRELUDE for one in definitions_of(TEXTS[name])]
    assert not (twice := Counter(found) - Counter({*found})), twice
    assert not (unseen := set().union(*map(unseen_locals, PRELUDE.values()))), unseen
    assert not (cut := [name for name, text in PRELUDE.items() if not is_whole(text)]), cut


def check_a_constant_of_the_prelude_is_a_literal():
    assert not (built := set().union(*map(built_constants, PRELUDE.values()))), built


def check_each_check_finds_what_it_is_for():
    for find, text, found in CASES:
        assert find(text) == found, (find.__name__, text[:80])


def with_locals(count):
    """A function with so many locals, all used by one in it."""
    names = [f"a{at}" for at in range(count)]
    made = "".join(f"local {name} = 1\n" for name in names)
    return f"local function f()\n{made}return function() return {{{', '.join(names)}}} end\nend"


def taken(text):
    return taken_names(text, {"f", "x"}, ["f"])


CASES = [
    (unknown_names, "local a = 1\nreturn a + b.c", {"b"}),
    (unknown_names, "local a = {b = 1, c = {d = e}} -- z", {"e"}),
    (unknown_names, "local function f(x) x = 1; y = 1 end", {"y"}),
    (unknown_names, "if redis.call('GET', 'b') then c = 1 end", {"c"}),
    (unknown_names, "local function f() return g() end\nlocal function g() end", {"g"}),
    (too_large, with_locals(MOST_OUTER), set()),
    (too_large, with_locals(MOST_OUTER + 1), {(48, 0, 46)}),
    (too_large, "local a = 1\n" * MOST_LOCALS + "return a", set()),
    (too_large, "local a = 1\n" * (MOST_LOCALS + 1) + "return a", {(0, 151, 0)}),
    (taken, "local function f(a) local b = {x = a.x, f = 'x'} end", set()),
    (taken, "local function f() local x = 1 end", {"x"}),
    (taken, "local function f(x) end", {"x"}),
    (taken, "local function f() for _, x in pairs({}) do f(x) end end", {"x"}),
    (taken, "local function f() x = 1 end", {"x"}),
    (taken, "local function f() f = nil end", {"f"}),
    (taken, "local function f() end\nf = nil", {"f"}),
    (taken, "local function f() end\nlocal function g() local f = 1 end", {"f"}),
    (unused_names, "local a, b\nlocal function main() return a end return main()", {"b"}),
    (unseen_locals, "local a = 1\nlocal function b(c) end\nlocal d, e = 1, 2", {"e"}),
    (built_constants, "local A = 1\nlocal B = 'b' -- b\nlocal c = {}", set()),
    (built_constants, "local A = {}\nlocal B = sub('b', 2)\nlocal C = 2 * 3", {"A", "B", "C"}),
    (is_whole, "-- a\nlocal a = {} -- b\nfunction a.b() end\n-- Rare\n\nlocal c\n", True),
    (is_whole, "local a = {}\n-- Rare\nfunction a.b() end\nlocal c\n", False),
    (rare_parts, "-- Rarely\n-- Rare\nlocal a\n-- Rare: b\n", 2),
]
CHECKS = [check for name, check in globals().items() if name.startswith("check_")]
OF = {"script": SCRIPTS, "file": TEXTS}


def problems():
    """All problems, a line each."""
    for check in CHECKS:
        of = [*inspect.signature(check).parameters]
        for names in [(name,) for name in OF[of[0]]] if of else [()]:
            try:
                check(*names)
            except (AssertionError, ValueError, KeyError) as error:
                claim = check.__name__.removeprefix("check_").replace("_", " ")
                yield f"{' '.join(names) or 'all'}: {claim}: {error}"


if __name__ == "__main__":
    found = list(problems())
    print(*found, f"{len(SCRIPTS)} scripts, {len(found)} problems", sep="\n")
    sys.exit(bool(found))
