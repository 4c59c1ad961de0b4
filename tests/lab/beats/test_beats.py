"""The entries of the real schedulers become rules, as the default suite expects of copies."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.rules.fields import listed
from tests.rules.frozen import DJANGO, REDBEAT, frozen
from tests.rules.test_importing import EXPECTED, becomes, same

ROOT = Path(__file__).parents[3]
PYTHON = Path(os.environ["DELAYQ_BEATS"]).absolute() / "bin" / "python"
MODULES = {
    "redbeat": ("redbeat_entries", "definitions", REDBEAT),
    "django-celery-beat": ("django_entries", "rows", DJANGO),
}


@pytest.fixture(scope="module", params=MODULES)
def source(request):
    return request.param


@pytest.fixture(scope="module")
def found(source, redis_server):
    redis_server.empty()
    done = subprocess.run(
        [PYTHON, "-m", f"tests.lab.beats.{MODULES[source][0]}", redis_server.url()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def of_each(said):
    lines, status = said
    return {one["name"]: becomes(one) for one in lines}, status


def test_the_frozen_entries_are_what_it_stores(found, source):
    _, part, name = MODULES[source]
    assert found[part] == frozen(name)


def test_a_dry_run_says_what_becomes_of_each_and_writes_nothing(found, source):
    assert (of_each(found["tried"]), found["rules after that"]) == ((EXPECTED[source], 1), 0)


def test_each_becomes_a_rule_or_is_refused(found, source):
    assert of_each(found["done"]) == (EXPECTED[source], 1)
    made = {name for name, (word, *_) in EXPECTED[source].items() if word == "new"}
    assert {*found["rules"]} == made
    assert [name for name, (_, is_paused) in found["rules"].items() if is_paused] == ["off"]


def test_a_scheduler_s_calls_are_those_that_it_would_send(found, source):
    queue = {"redbeat": "every:poll", "django-celery-beat": "every:hourly"}[source]
    assert found["runs"]["every:daily"] == [[1], {"big": True}, "celery"]
    assert found["runs"][queue] == [[], {}, "mail"]


def test_a_crontab_fires_when_its_scheduler_says(found):
    assert {*found["times"]} == {"daily", "fields"}
    for of_rule, of_scheduler in found["times"].values():
        assert len(of_rule) == 2
        assert of_rule == of_scheduler


def test_each_field_and_setting_is_in_the_table_of_coming_from_beat(found):
    for of, fields in found["fields"].items():
        assert {*fields} == listed(of), of


def test_the_second_time_nothing_changes(found, source):
    assert of_each(found["again"]) == (same(EXPECTED[source]), 1)


@pytest.mark.parametrize("source", ["django-celery-beat"], indirect=True)
def test_a_database_without_its_tables_is_one_sentence(found):
    assert found["without tables"].startswith("Error: --from is 'django-celery-beat'; expected a")
    assert "no such table" in found["without tables"]
