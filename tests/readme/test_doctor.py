"""What OPERATIONS.md shows of `delayq doctor` is what one sees, but for the figures."""

import re

from tests.readme.document import OPERATIONS
from tests.readme.test_console import said_by

COMMAND = "celery -A shop delayq doctor --rates --tasks 1000"


def without_figures(text):
    """Each line without its numbers, and up to what limits, which is another thing elsewhere."""
    lines = (re.sub(" +", " ", line).partition(" limited by ") for line in text.splitlines())
    return [(re.sub(r"\d[\d.,]*", "0", said), bool(limit)) for said, limit, _ in lines]


def test_the_output_of_the_rates_is_what_one_sees(environment, shop_file):
    [shown] = OPERATIONS.written_in("text", "Measuring one's own Redis")

    said, status = said_by(COMMAND, environment, shop_file)

    assert status == 0
    assert without_figures(said) == without_figures(shown.text)


def test_rates_are_printed_as_json(environment, shop_file):
    said, _ = said_by(f"{COMMAND} --json", environment, shop_file)

    assert said.startswith("{")
