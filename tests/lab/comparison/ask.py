"""One probe of one way, in a process of its own: python -m tests.lab.comparison.ask WAY ROW

A driver reads the servers' addresses when it is imported, so that comes after the servers.
"""

import importlib
import json
import sys

from tests.lab.comparison import answers
from tests.lab.comparison.rows import ANSWERS, FIGURES
from tests.lab.comparison.site import site
from tests.lab.comparison.ways import COLUMNS


def ask(name: str, row: str) -> answers.Answer | dict[str, float]:
    """The cell of a row, or its figures."""
    [column] = [one for one in COLUMNS if one.name == name]
    with site(rabbit=column.rabbit, short=row == "timeout") as made:
        way = importlib.import_module(f"tests.lab.comparison.ways.{name}").Driver()
        for one in ANSWERS:
            if one.name == row:
                return answers.asked(one.probe, made, way)
        [measured] = [one for one in FIGURES if one.name == row]
        return measured.probe(made, way)


if __name__ == "__main__":
    print(json.dumps(ask(*sys.argv[1:])))
