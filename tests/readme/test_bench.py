"""What the README shows of `delayq bench` is what one sees, but for the figures and what limits."""

import re

from tests.readme.document import PACKAGE
from tests.readme.test_console import said_by

COMMAND = "celery -A shop delayq bench --tasks 1000"


def without_figures(text):
    """Each line without its numbers, and up to what limits, which is another thing elsewhere."""
    lines = (line.partition(" What limits: ") for line in text.splitlines())
    return [(re.sub(r"\d[\d.,]*", "0", said), bool(limit)) for said, limit, _ in lines]


def test_the_output_of_a_bench_is_what_one_sees(environment, shop_file):
    [shown] = PACKAGE.written_in("text", "Measuring one's own Redis")

    said, status = said_by(COMMAND, environment, shop_file)

    assert status == 0
    assert without_figures(said) == without_figures(shown.text)


def test_a_bench_prints_json(environment, shop_file):
    said, _ = said_by(f"{COMMAND} --json", environment, shop_file)

    assert said.startswith("{")


def test_the_readme_s_figures_agree_with_each_other():
    [shown] = PACKAGE.written_in("text", "Measuring one's own Redis")

    hand_over, in_bulk = (
        re.search(r"hand over +(\S+) tasks", shown.text)[1],
        re.search(r"(\S+) in bulk", shown.text)[1],
    )

    assert f"hands over about {hand_over} tasks/s" in shown.text
    assert f"holds about {in_bulk} tasks/s" in shown.text
