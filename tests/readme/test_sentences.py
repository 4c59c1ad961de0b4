"""In the README and the pages, no pattern finds a sentence that has to be read twice."""

import pytest

from tests.lab import english
from tests.readme.document import CHANGELOG, CONTRIBUTING, DOCUMENTS, PAGES, README, SECURITY, TESTS

OTHERS = (DOCUMENTS["example_project/README.md"], TESTS, CONTRIBUTING, CHANGELOG, SECURITY)


@pytest.mark.parametrize("document", [README, *PAGES, *OTHERS], ids=lambda document: document.name)
def test_no_sentence_is_to_be_rewritten(document):
    found = english.places(document.path, document.text)
    assert [f"line {one.line}, {one.pattern}: {one.sentence}" for one in found] == []
