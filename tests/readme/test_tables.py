"""The tables and numbers in the documents match the code."""

import re
from itertools import chain

import pytest

import celery_delayq
from celery_delayq import Outcome
from celery_delayq.contrib.control import panel
from celery_delayq.contrib.metrics.names import alerts
from celery_delayq.core.handover.relay import MAX_REFUSALS
from celery_delayq.core.scheduling.options import OPTIONS
from celery_delayq.core.settings import REMEMBER, SETTINGS
from celery_delayq.core.store.scripts import prelude
from tests.readme.document import (
    CHANGELOG,
    DOCS,
    DOCUMENTS,
    FAULTS,
    PAGES,
    README,
    ROOT,
    TESTS,
    page,
)
from tests.readme.tables import checks, texts

README_LINES, README_COLUMNS, PAGE_LINES = 150, 100, 270
HEADERS = {"delayq_due", "delayq_attempt", "delayq_redelivered", "delayq_put_offs"}


def project():
    return (ROOT / "pyproject.toml").read_text("utf-8")


@pytest.mark.parametrize("text", texts(), ids=lambda text: text.document.name)
def test_a_text_that_comes_from_the_code_is_as_the_code_has_it(text):
    assert text.text in text.document.text, "write it anew: python -m tests.readme.tables"
    assert text.written() == text.document.text


def test_each_alert_leads_to_a_line_of_the_doctor_with_a_section():
    sections = {one.name: one.section for one in checks()}
    assert [one.name for one in alerts() if one.line and not sections.get(one.line)] == []
    told = {section for section in sections.values() if section.startswith("delayq")}
    assert told <= {one.section for one in alerts()}


def test_the_readme_is_short():
    lines = README.text.splitlines()
    assert len(lines) <= README_LINES
    assert [line for line in lines if len(line) > README_COLUMNS] == []


@pytest.mark.parametrize("document", PAGES, ids=lambda document: document.name)
def test_a_page_is_short(document):
    assert len(document.text.splitlines()) <= PAGE_LINES


def test_the_site_has_every_page():
    named = re.findall(
        r"([\w/-]+\.md)$", (ROOT / DOCS / "mkdocs.yml").read_text("utf-8"), re.MULTILINE
    )
    assert sorted(named) == sorted(document.name.removeprefix(DOCS) for document in PAGES)


def test_the_road_of_a_call_is_the_one_that_it_takes():
    rows = [
        row for row in page("inside/one-call").rows("One call, step by step") if ".py" in row[1]
    ]
    assert len(rows) > 10
    for _, file, function, *_ in rows:
        code = (ROOT / "celery_delayq" / file.strip("`")).read_text("utf-8")
        assert f"def {function.strip('`')}(" in code, (file, function)


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=lambda document: document.name)
def test_every_setting_that_a_text_names_is_one(document):
    named = set(re.findall(r"\bdelayq_[a-z_]+\b", document.text))
    commands = {name for name in vars(panel) if name.startswith("delayq")}
    plugin = (ROOT / "celery_delayq" / "contrib" / "pytest.py").read_text("utf-8")
    tests_have = set(
        re.findall(r"^def (delayq_\w+)|addini\(\s*\"(delayq_\w+)", plugin, re.MULTILINE)
    )
    settings = {setting.key for setting in SETTINGS}
    assert named <= {*OPTIONS} | HEADERS | commands | settings | {*chain(*tests_have)}


def test_the_outcomes_are_those_that_there_are():
    named = [row[0] for row in page("guide/change").rows("Outcomes")]
    assert named == [f"`{outcome.name}`" for outcome in Outcome]


def test_the_versions_are_those_that_the_project_declares():
    ci = (ROOT / ".ci" / "run").read_text("utf-8")
    pythons = re.findall(r"Python :: (3\.\d+)", project())
    supported = {row[0]: row[1:] for row in TESTS.rows("What it is run on")}
    celery = supported["Celery"][0].removesuffix(" and later")
    redis = supported["Redis"][0].removesuffix(" and later")

    assert supported["Python"][0] == f"{pythons[0]} to {pythons[-1]}"
    assert f'requires-python = ">={pythons[0]}"' in project()
    assert f'"celery[redis]>={celery}"' in project()
    pinned = dict(re.findall(r"(\w+)==([\d.]+)", re.search(r'OLDEST_PINS="(.*)"', ci)[1]))
    django = pinned.pop("django")
    assert f'"django>={django}"' in project()
    assert supported["Django"] == [f"{django} and later", f"{django}, and the newest"]
    said = supported["Celery"][1]
    assert all(version in said for version in pinned.values())
    assert len(re.findall(r"\d+\.\d+\.\d+", said)) == len(pinned)
    assert (
        f"Python {supported['Python'][0]}, Celery {celery} and later, Redis {redis} and later"
        in README.parts("Status")
    )


def test_the_classifiers_name_the_oldest_django_that_is_tested():
    versions = re.findall(r"Django :: (\d[\d.]*)", project())
    assert f'"django>={versions[0]}"' in project()


def test_the_changelog_begins_with_this_version_and_has_a_place_for_the_next_line():
    first = re.split(r"^## ", CHANGELOG.text, flags=re.MULTILINE)[1]
    version, _, day = first.partition("\n")[0].partition(" - ")
    assert version == celery_delayq.__version__
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", day) or (
        day == "unpublished" and "\n### Changed" in first
    )
    assert f"Version {celery_delayq.__version__} " in README.parts("Status")


def test_each_case_of_what_happens_when_leads_to_tests():
    cases = page("concepts/guarantees").parts("What happens when").split("\n- ")[1:]
    assert len(cases) > 10
    assert [case for case in cases if "](../../../tests/" not in case] == []


def test_every_row_of_the_faults_leads_to_a_test():
    sections = ("Processes", "Redis, the store", "The broker", "Races, and every order of events")
    rows = [row for section in sections for row in FAULTS.rows(section)]
    assert len(rows) > 20
    assert [row[0] for row in rows if "test_" not in row[-1] or len(row) != 4] == []


def test_the_format_that_is_described_is_the_one_that_is_written():
    assert prelude().definitions["FORMAT"].literal == "'1'"
    assert "This release writes and reads format 1." in page("operate/moving").text


def test_the_layers_are_those_that_import_linter_checks():
    for place, drawn in enumerate(page("inside/house").written_in("text")):
        rows = [re.split(r" {2,}", line)[0] for line in drawn.text.splitlines()]
        contract = [row for row in contracts()[place] if row not in ("signals", "errors")]
        assert [words(row) for row in rows] == [words(row) for row in contract]


def contracts():
    """The rows of the layers of each contract."""
    found = re.findall(r"^layers = \[(.*?)\]$", project(), re.MULTILINE | re.DOTALL)
    return [re.findall(r'"(.*?)"', rows) for rows in found]


def words(row):
    return set(re.findall(r"\w+", row))


def test_every_folder_of_tests_is_in_the_table():
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/__init__.py")}
    named = {row[0].split("`")[1].rstrip("/") for row in TESTS.rows("What is where")}
    assert named == folders


def test_the_variables_of_the_suite_are_those_that_it_reads():
    run = (ROOT / "tests" / "run").read_text("utf-8")
    named = {row[0].strip("`") for row in TESTS.rows("The tests") if row[0].startswith("`DELAYQ")}
    assert named == set(re.findall(r"^# (DELAYQ_\w+)", run, re.MULTILINE))


def test_the_words_that_a_page_explains_are_used():
    files = [path for kind in ("*.py", "*.lua") for path in (ROOT / "celery_delayq").rglob(kind)]
    used = " ".join(path.read_text("utf-8") for path in files).lower().replace("_", " ")
    terms = re.findall(
        r"^- \*\*(.+?)\*\*:", page("concepts/how-it-works").parts("Words"), re.MULTILINE
    )
    words = [word.strip() for term in terms for word in term.split(",")]
    assert len(words) > 10
    assert [word for word in words if word.lower() not in used] == []


# Numbers.


def test_the_package_is_as_large_as_the_page_says():
    said = re.search(r"Of ([\d,]+) modules \(([\d,]+) lines\)", page("why").text)
    files = [*(ROOT / "celery_delayq").rglob("*.py")]
    lines = sum(len(path.read_text("utf-8").splitlines()) for path in files)
    assert [int(each.replace(",", "")) for each in said.groups()] == pytest.approx(
        [len(files), lines], rel=0.1
    )


def test_as_many_tombstones_are_kept_as_the_pages_say():
    assert REMEMBER == (3600, 1_000_000)
    said = page("reference/settings").parts("How long answers last")
    for megabytes, rate in ((9, 10), (86, 100), (240, 280)):
        kept = 2 * min(rate * REMEMBER[0], REMEMBER[1])
        assert round(kept * 120 / 1_000_000) == megabytes
        assert re.search(rf"{megabytes} MB (if|at) {rate}\b", said)


def test_a_refused_message_is_tried_as_often_as_the_page_says():
    assert MAX_REFUSALS == 8
    assert "After eight refusals it is [dead]" in page("concepts/guarantees").text
