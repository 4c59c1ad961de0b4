"""Where the READMEs lead to is there; and the first one leads nowhere that an index lacks."""

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


def test_the_readme_links_to_no_file_for_a_package_index_has_none():
    assert [link for link in README.links if not link.startswith(("#", "https://"))] == []


def test_every_section_of_the_readme_is_in_its_contents():
    heads = re.findall(r"^## (.*)$", README.prose, re.MULTILINE)
    contents = re.findall(r"\[([^\]]+)\]\(#", README.parts("Installation"))
    assert contents == [head for head in heads if head != "Installation"]


@EACH
def test_every_file_that_it_names_is_there(document):
    places = [document.path.parent, ROOT, ROOT / "celery_delayq", ROOT / "tests"]
    named = set(PATH.findall(document.prose)) - {"store/lua/release.lua", "web/", "contrib/"}
    missing = [one for one in named if not any((place / one).exists() for place in places)]
    ours = {path.name for path in (ROOT / "celery_delayq").rglob("*.lua")} | {"shop.py"}
    assert [one for one in missing if one not in ours] == []
