"""``./tests/run english`` finds each kind of sentence, and accepts its better form."""

from pathlib import Path

import pytest

from tests.lab.english import places


def found(name: str, source: str) -> list[tuple[int, str]]:
    return [(place.line, place.pattern) for place in places(Path(name), source)]


KINDS = {
    "What has left is not brought back.": "clause as a noun",
    "It lists what waits.": "clause as a noun",
    "Whoever dies sends none.": "clause as a noun",
    "This is all that is known.": "clause as a noun",
    "Where no scanner runs, nothing leaves.": "where for if",
    "It is ``None`` where there is no head.": "where for if",
    "The worker is told of it.": "who says it",
    "It is held by somebody else.": "process as a person",
    "The answer reaches nobody.": "process as a person",
}


@pytest.mark.parametrize(("sentence", "pattern"), KINDS.items())
def test_a_sentence_of_each_kind_is_found(sentence, pattern):
    for name, source in {
        "a.md": f"Good.\n\n{sentence}\n",
        "a.py": f"x = 1\n\n# {sentence}\n",
        "b.py": f'x = 1\n\nraise ValueError(f"{sentence}")\n',
        "a.lua": f"local x = 1\n\n-- {sentence}\n",
    }.items():
        assert (3, pattern) in found(name, source), name


@pytest.mark.parametrize(
    "sentence",
    [
        "A delivered task cannot be recalled.",
        "What should you watch?",
        "A task stays in Redis, where it waits for its time.",
        "It tells where the task waits.",
        "If no scanner runs, no task leaves.",
        "Whatever the setting, the worker drops it.",
    ],
)
def test_the_better_form_of_a_sentence_passes(sentence):
    assert found("a.md", sentence) == []


def test_a_sentence_over_two_lines_is_found_at_its_first():
    assert found("a.py", "# One.\n# What is\n# left goes.\n") == [(2, "clause as a noun")]
    assert found("a.py", 'x = 1\n"""One.\n\nWhat is\nleft goes.\n"""\n') == [
        (4, "clause as a noun")
    ]
    assert found("a.lua", "--[[ a: one.\n\nWhat is\nleft goes.\n]]\n") == [(3, "clause as a noun")]


def test_code_and_headings_of_documents_pass():
    assert found("a.md", "# What is new\n\n```\nWhat is it.\n```\n") == []
    assert found("a.md", "| What is it | b |\n| --- | --- |\n| a | b |\n") == []
    assert found("a.md", "```\nx\n```\n\n| What is it | b |\n") == [(5, "clause as a noun")]
