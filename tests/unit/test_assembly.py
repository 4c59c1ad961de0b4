"""A script gets the parts of the prelude that it uses, and makes rare functions when it must."""

import pytest
from lupa.lua51 import LuaRuntime

from celery_delayq.core.store.scripts import Prelude
from tests.support.lua_chunk import compiled

KEYS = ("due", "records", "meta")
SHARED = """\
--[[ Shared by all. ]]
local ONE = 1 -- a number
local A_WORD = 'word'
local seen = {}

-- See keys.meta.
local function note(text) seen[#seen + 1] = text end
local function plain() note('plain'); return keys.records end
local function early() note('early'); return late() end

-- Rare: nearly never.

local last = {}
local function late() return early_too() .. A_WORD end
local function early_too() note('late'); return keys.due end
local function other() return plain() .. early() end
"""


def assembled(source):
    return Prelude([SHARED]).assembled(f"{source}\n", KEYS)


def run(source):
    text, keys = assembled(source)
    lua = LuaRuntime()
    lua.globals().KEYS = lua.table(*keys)
    return lua.execute(text)


def made(source):
    """The definitions of the prelude that a call makes, and those that it makes when it must."""
    whole = compiled(assembled(source)[0])
    rare = [name for one in whole.inside if "made" in one.named for name in one.named]
    return {*whole.named} - {"main", "rare"}, {*rare} - {"made"}


def test_a_script_has_of_the_prelude_what_it_uses_and_no_more():
    assert made("return plain()") == ({"plain", "note", "seen"}, set())
    assert made("return 2") == (set(), set())


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("return 2 -- late() ONE", 2),
        ("--[[ late() \n 'ONE' ]] return 2", 2),
        ("return 'late() -- ONE'", "late() -- ONE"),
        (r"return 'late\' ONE'", "late' ONE"),
        ("return ({late = 2, ONE = 3}).late", 2),
        ("local one = {}; one.ONE = 2; return one.ONE", 2),
        ("local one = {ONE = 2, [ONE] = 3}; return one.ONE .. one[1]", "23"),
        ("local ONES, late_too = 2, 3; return ONES + late_too", 5),
    ],
)
def test_a_comment_a_text_a_field_and_a_longer_name_are_left_alone(source, answer):
    assert run(source) == answer


@pytest.mark.parametrize("source", ["return 'a'..A_WORD..'b'", "return 'a' .. A_WORD .. 'b'"])
def test_the_operator_that_joins_texts_makes_no_field(source):
    assert run(source) == "awordb"
    assert run("return 'a'..late()") == "adueword"


def test_a_constant_is_written_where_it_is_used():
    assert made("return ONE == 1 and A_WORD") == (set(), set())
    assert run("return ONE == 1 and A_WORD") == "word"


def test_rare_functions_are_made_when_one_is_called_and_once():
    source = "local one = late\nlate()\nreturn one == late and #seen"
    assert made(source) == ({"seen"}, {"note", "late", "early_too"})
    assert run(source) == 1


def test_a_function_is_rare_if_only_rare_ones_use_it():
    rare = {"other", "plain", "early", "late", "early_too"}
    assert made("return other()") == ({"seen"}, {*rare, "note"})
    assert made("return other(), note('x')") == ({"seen", "note"}, rare)


def test_a_function_may_use_rare_ones_that_are_defined_below_it():
    assert run("return early()") == "dueword"
    assert run("return other()") == "recordsdueword"  # there all of them are rare


def test_values_are_made_at_once():
    assert made("return late()")[0] == {"seen"}
    assert made("return late(), last")[0] == {"seen", "last"}


def test_the_keys_of_rare_functions_are_sent_along_in_the_order_of_all():
    assert assembled("return plain(), keys.meta, late()")[1] == ["due", "records", "meta"]
    assert run("return keys.meta .. late()") == "metadueword"


def test_a_key_that_only_a_comment_names_is_not_sent():
    assert assembled("return plain() -- keys.due")[1] == ["records"]


def test_a_key_may_have_a_name_that_only_the_call_knows():
    assert run("local name = 'records'; return plain() .. keys[name]") == "recordsrecords"
