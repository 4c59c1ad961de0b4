"""A linter of the Lua scripts: ``python -m tests.lint_lua``.

Above all it compares each script's header with its body, as callers rely on the header. A check
is a function that takes a file's name and asserts.
"""

import re
import sys
from importlib import resources

from celery_delayq.store.keys import KEYS
from celery_delayq.store.scripts import arguments_of, load, prelude

FOLDER = resources.files("celery_delayq.store") / "lua"
SOURCES = {
    path.name: path.read_text("utf-8") for path in FOLDER.iterdir() if path.name.endswith(".lua")
}
SCRIPTS = sorted(SOURCES)
MOST_UPVALUES = 60  # of a function in Lua 5.1
WIDEST = 125  # columns
FAMILY = {"ZSET": ("Z",), "HASH": ("H",), "LIST": ("L",)}

LINE = re.compile(r"^(text|number|flag|filter|rows)(\.\.\.)?\s+(\w+)(.*)$", re.MULTILINE)
REPLY = re.compile(r"^reply +(.+(?:\n {9}.+)*)", re.MULTILINE)
NAMES = r"[A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*"
KEY = re.compile(r"\bkeys\.(\w+)")
LUAS = (
    "and break do else elseif end false for function if in local nil not or repeat return then "
    "true until while ARGV KEYS ipairs math pairs pcall redis select string table tonumber type "
    "unpack"
)
CALL = re.compile(r"redis\.p?call\('(\w+)',\s*keys\.(\w+)")


def header(name):
    return SOURCES[name].partition("]]\n")[0]


def declared(name):
    """The arguments that a header names, in order."""
    return [word for _, _, word, _ in LINE.findall(header(name))]


def without_comments(text):
    return re.sub(r"--(\[\[.*?\]\]|[^\n]*)", "", text, flags=re.DOTALL)


def code(name):
    return without_comments(SOURCES[name])


def whole(name):
    """The script as it is sent, with the parts of the prelude that it uses."""
    return load()[name.removesuffix(".lua")].text


def without_strings(text):
    return re.sub(r"'[^'\n]*'", "''", text)


def globals_set(text):
    """Names that are assigned, but declared nowhere."""
    text = without_strings(without_comments(text))
    text = re.sub(r"\brepeat\b|\bthen\b|\bdo\b|\belse\b|;", "\n", text)
    known = names_made(text)
    while (flat := re.sub(r"\{[^{}]*\}", "", text)) != text:
        text = flat
    assigned = re.findall(rf"^\s*({NAMES})\s*=(?!=)", text, re.MULTILINE)
    functions = re.findall(r"(?<!local )\bfunction\s+(\w+)", text)
    return {word for part in (*assigned, *functions) for word in split(part)} - known


def names_made(text):
    """Locals and parameters of a text without comments and strings."""
    local = re.findall(rf"\blocal\s+(?:function\s+)?({NAMES})|\bfor\s+({NAMES})", text)
    parameters = re.findall(r"\bfunction\b[^(]*\(([^)]*)\)", text)
    return {word for group in (*local, parameters) for part in group for word in split(part)}


def unknown_names(text):
    """Names that are read, but declared nowhere."""
    text = without_strings(without_comments(text))
    known = names_made(text)
    text = re.sub(r"(?<!\.)\.\w+|(?<=[{,])\s*\w+\s*=(?!=)", " ", text)  # fields
    return set(re.findall(r"\b[A-Za-z_]\w*", text)) - known - set(LUAS.split())


def split(names):
    return [name.strip() for name in names.split(",") if name.strip()]


def check_a_header_says_what_the_script_does_under_its_own_name(name):
    first = SOURCES[name].splitlines()[0]
    assert re.fullmatch(rf"--\[\[ {name.removesuffix('.lua')}: .+\.", first)


def check_a_header_has_every_section(name):
    for section in ("Returns", "Cost", "Keeps"):
        assert re.search(rf"^{section} +\S", header(name), re.MULTILINE), section


def check_a_changing_script_is_one_call(name):
    is_change = re.search(r"^change ", header(name), re.MULTILINE) is not None
    assert is_change == bool(
        re.search(r"^return change\(request, function", code(name), re.MULTILINE)
    )


def check_only_the_last_argument_takes_the_rest(name):
    kinds = [(kind, bool(dots)) for kind, dots, *_ in LINE.findall(header(name))]
    assert not [kind for kind, dots in kinds[:-1] if dots or kind == "rows"]
    assert ("rows", False) not in kinds


def check_every_field_of_a_row_is_declared_and_used(name):
    if "rows..." not in header(name):
        return
    fields = re.findall(r"(\w+) = ARGV\[at \+ \d+\]", arguments_of(header(name)))
    assert fields
    assert [field for field in fields if not re.search(rf"\.{field}\b", code(name))] == []


def check_keys_are_called_by_the_names_of_the_layout(name):
    named = set(KEY.findall(without_comments(whole(name)).partition("\n")[2]))
    assert named - KEYS.keys() == set()
    assert not re.search(r"\bKEYS\b", code(name))


def check_no_position_is_named(name):
    assert not re.search(r"\bARGV\b", code(name))


def check_the_parts_of_the_reply_have_names_of_their_own(name):
    for names in REPLY.findall(header(name)):
        parts = [part.split()[0] for part in names.split(",")]
        assert len(parts) == len(set(parts)), parts
        assert all(re.fullmatch(r"[a-z_]+", part) for part in parts), parts


def check_every_declared_name_is_used(name):
    words = set(re.findall(r"\w+", without_strings(code(name))))
    assert [word for word in declared(name) if word not in words] == []


def check_a_key_meets_only_commands_of_its_type(name):
    for command, key in CALL.findall(without_comments(whole(name))):
        family = FAMILY.get(KEYS[key].split()[0])
        if family and command not in {"RENAME", "DEL", "UNLINK", "EXISTS"}:
            assert command.startswith(family), f"{command} {key}"


def check_every_argument_has_its_range_or_meaning(name):
    for _, _, word, says in LINE.findall(header(name)):
        assert says.strip(), word


def check_no_global_variable_is_set(name):
    opening = arguments_of(header(name))
    assert globals_set(prelude() + opening + SOURCES[name]) == set()


def check_every_name_is_declared(name):
    assert not unknown_names(whole(name)), unknown_names(whole(name))


def check_the_check_for_unknown_names_finds_them():
    for text, found in (
        ("local a = 1\nreturn a + b.c", {"b"}),
        ("local function f(x) return x .. y end", {"y"}),
        ("local a = {b = 1, c = {d = e}}", {"e"}),
        ("for at = 1, 2 do redis.call('GET', at) end -- z", set()),
    ):
        assert unknown_names(text) == found, text


def check_the_check_for_globals_finds_them():
    for text, found in (
        ("local a = 1\na = 2", set()),
        ("b = 1", {"b"}),
        ("if a == b then c = 1 end", {"c"}),
        ("local function f(x) x = 1 end", set()),
        ("function g() end", {"g"}),
        ("local a\na, b = 1, 2", {"b"}),
        ("for at = 1, 2 do at = 3 end", set()),
        ("local t = {\n  a = 1,\n  b = {c = 2},\n}", set()),
        ("local t = 'x = 1' -- y = 1", set()),
    ):
        assert globals_set(text) == found, text


def check_a_script_uses_no_more_of_the_prelude_than_a_function_can(name):
    shared, _, own = without_comments(whole(name)).partition("local function main()\n")
    defined = set(re.findall(r"^local (?:function )?(\w+)", shared, re.MULTILINE))
    used = defined & set(re.findall(r"(?<![.\w])\w+", without_strings(own)))
    assert len(used) <= MOST_UPVALUES, len(used)


def check_no_script_decodes_a_body(name):
    assert not re.search(r"\b(cjson|cmsgpack|struct|loadstring)\b", code(name))


def check_time_is_asked_for_in_one_place_only(name):
    assert "'TIME'" not in code(name)
    assert prelude().count("'TIME'") == 1


def check_no_line_is_too_wide():
    wide = [
        f"{path.name}:{number}"
        for path in FOLDER.rglob("*.lua")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if len(line) > WIDEST
    ]
    assert not wide, ", ".join(wide)


def check_entries_leave_in_one_place():
    removals = r"'HDEL', (?:keys\.)?records\b"
    assert not [name for name in SCRIPTS if re.search(removals, code(name))]
    assert len(re.findall(removals, without_comments(prelude()))) == 1


OF_A_FILE = [one for name, one in globals().items() if name.startswith("check_")]
OF_ALL = [
    check_the_check_for_globals_finds_them,
    check_the_check_for_unknown_names_finds_them,
    check_entries_leave_in_one_place,
    check_no_line_is_too_wide,
]


def problems():
    """All problems, a line each."""
    files = [
        (name, check, (name,)) for name in SCRIPTS for check in OF_A_FILE if check not in OF_ALL
    ]
    for name, check, arguments in [*files, *(("all scripts", check, ()) for check in OF_ALL)]:
        try:
            check(*arguments)
        except (AssertionError, ValueError, KeyError) as error:
            claim = check.__name__.removeprefix("check_").replace("_", " ")
            yield f"{name}: {claim}: {error}"


if __name__ == "__main__":
    found = list(problems())
    print(*found, f"{len(SCRIPTS)} scripts, {len(found)} problems", sep="\n")
    sys.exit(bool(found))
