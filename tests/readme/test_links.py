"""The links and files that the documents name exist."""

import re

import pytest

from tests.readme.document import DOCUMENTS, README, ROOT

EACH = pytest.mark.parametrize("document", DOCUMENTS.values(), ids=lambda document: document.name)

# In backticks, with a slash or an ending that only a file of this project has.
PATH = re.compile(r"`((?:\./)?[\w.]+(?:/[\w.]+)*(?:/|\.(?:py|lua|md|mjs|toml)))`")


def anchors_of(path):
    [document] = [one for one in DOCUMENTS.values() if one.path == path.resolve()]
    return document.anchors


@EACH
def test_every_file_that_it_links_to_is_there(document):
    files = [link.partition("#")[0] for link in document.links if "://" not in link]
    assert [one for one in files if one and not (document.path.parent / one).exists()] == []


@EACH
def test_every_section_that_it_links_to_is_there(document):
    for link in document.links:
        if "://" in link or "#" not in link:
            continue
        file, _, anchor = link.partition("#")
        path = document.path.parent / file if file else document.path
        assert anchor in anchors_of(path), link


def test_every_link_that_the_readme_defines_is_used():
    defined = re.findall(r"^\[([^\]]+)\]: ", README.text, re.MULTILINE)
    used = {name.lower() for name in re.findall(r"\[([^\]]+)\](?!:)", README.text)}
    assert [name for name in defined if name not in used] == []


@EACH
def test_every_file_that_it_names_is_there(document):
    package = ROOT / "celery_delayq"
    own = [
        package,
        package / "core",
        package / "core/store/lua",
        ROOT / "tests",
        ROOT / "example_project",
    ]
    places = [document.path.parent, ROOT, *own]
    named = set(PATH.findall(document.prose)) - {
        "contrib/web/",
        "contrib/",
    }
    missing = [one for one in named if not any((place / one).exists() for place in places)]
    ours = {path.name for path in (ROOT / "celery_delayq").rglob("*.lua")} | {"shop.py"}
    assert [one for one in missing if one not in ours] == []
