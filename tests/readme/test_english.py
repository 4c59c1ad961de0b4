"""The pages have no sentence of a pattern that one has to read twice."""

import pytest

from tests.readme.english import PATTERNS, hits_in, hits_in_pages

READ_BY_USERS = ("README.md", "celery_delayq/", "example_project/", "tests/README.md")


def test_no_page_has_such_a_sentence():
    hits = [hit for hit in hits_in_pages() if hit.file.startswith(READ_BY_USERS)]
    assert [f"{hit.file}:{hit.line}: {hit.text}" for hit in hits] == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("a clause as the subject", "It is done. What waits is kept."),
        ("whoever, whatever", "It is up to whoever asks."),
        ("somebody else", "Another one is somebody else's."),
        ("is told, is said, is asked", "Each caller is told."),
        ("where for if", "Where Redis is away, it fails."),
        ("where for if", "It fails, where Redis is away."),
        ("a clause as a noun", "Some of what is there goes."),
        ("what waits", "It lists what waits."),
        ("of one's own", "A Redis of one's own."),
    ],
)
def test_each_pattern_is_found(pattern, text):
    assert pattern in {hit.pattern for hit in hits_in("page.md", iter([(1, text)]))}
    assert pattern in PATTERNS


@pytest.mark.parametrize("text", ["What next? Read on.", "Here is where it runs.", "You ask it."])
def test_plain_sentences_pass(text):
    assert list(hits_in("page.md", iter([(1, text)]))) == []
