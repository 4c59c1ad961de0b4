"""Every run of the suite draws the same examples."""

import importlib.util
import random
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

CONSTANT = "only here"  # it uses no constant of more than 20 characters


@pytest.fixture
def drawn():
    """The examples of a property test."""

    def drawn(**options):
        examples = []

        @settings(**options)
        @given(st.text() | st.integers())
        def draw(one):
            examples.append(one)

        draw()
        return examples

    return drawn


@pytest.fixture
def more_is_imported(tmp_path, monkeypatch):
    """Import a module of this project that is not imported yet."""

    def more_is_imported():
        path = tmp_path / "more.py"
        path.write_text("\n".join(f"A{n} = '{CONSTANT} {n}'" for n in range(999)), encoding="ascii")
        spec = importlib.util.spec_from_file_location("more_is_imported", path)
        monkeypatch.setitem(sys.modules, spec.name, importlib.util.module_from_spec(spec))

    return more_is_imported


def test_a_property_test_draws_the_same_again_whatever_was_drawn_by_others(drawn):
    before = drawn()
    random.seed(7)
    assert drawn() == before


def test_modules_that_others_import_meanwhile_change_no_draw(drawn, more_is_imported):
    before = drawn(max_examples=500)
    more_is_imported()
    assert drawn(max_examples=500) == before


def test_no_example_is_kept_for_the_next_run():
    assert settings().database is None


def test_the_profile_fresh_draws_anew(drawn):
    assert drawn(derandomize=False, database=None) != drawn(derandomize=False, database=None)
