"""The README's tables and numbers are those of the code."""

import re

from celery_delayq import Outcome
from celery_delayq.settings import SETTINGS
from tests.readme import document
from tests.readme.settings_table import table

ROOT = document.README.parent


def test_the_settings_are_those_that_are_declared():
    assert table() in document.parts("Settings")
    assert len(document.rows("Settings")) == len(SETTINGS)


def test_every_setting_that_the_readme_names_is_one():
    named = set(re.findall(r"\bdelayq_[a-z_]+\b", document.README.read_text("utf-8")))
    options = {"delayq_at", "delayq_after"}
    headers = {"delayq_redelivered", "delayq_attempt", "delayq_due"}
    own = {"celery_delayq"}
    assert named - options - headers - own <= {setting.key for setting in SETTINGS}


def test_the_outcomes_are_those_that_there_are():
    named = [row[0] for row in document.rows("Changing one's mind")]
    assert named == [f"`{outcome.name}`" for outcome in Outcome]


def test_the_versions_are_those_that_the_project_declares():
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    ci = (ROOT / ".ci" / "run").read_text("utf-8")
    pythons = re.findall(r"Python :: (3\.\d+)", project)
    supported = {row[0]: row[1:] for row in document.rows("Supported versions")}

    assert supported["Python"][0] == f"{pythons[0]} to {pythons[-1]}"
    assert f'requires-python = ">={pythons[0]}"' in project
    celery = supported["Celery"][0].removesuffix(" and later")
    assert f'"celery[redis]>={celery}"' in project
    pinned = re.findall(r"(\w+)==([\d.]+)", re.search(r'OLDEST_PINS="(.*)"', ci)[1])
    said = supported["Celery"][1]
    assert all(version in said for _, version in pinned)
    assert len(re.findall(r"\d+\.\d+\.\d+", said)) == len(pinned)


def test_every_file_that_the_readme_leads_to_is_there():
    leads = re.findall(r"\]\((?!https?:|#)([^)]+)\)", document.README.read_text("utf-8"))
    assert leads
    assert [lead for lead in leads if not (ROOT / lead).exists()] == []


def test_every_section_that_the_readme_leads_to_is_there():
    text = document.README.read_text("utf-8")
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= anchors


def test_every_row_of_what_happens_when_names_tests():
    rows = document.rows("What happens when")
    assert len(rows) > 10
    assert [row[0] for row in rows if "](tests/" not in row[-1]] == []
