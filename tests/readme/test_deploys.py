"""The page about deploys: its commands stop a roll-out, and let another one pass."""

import json
import re
import shlex

import pytest

from tests.readme.document import page
from tests.readme.shape import shape
from tests.readme.test_console import said_by

PAGE = page("operate/deploys")
(JOB,) = PAGE.written_in("sh")
(CONTAINER,) = PAGE.written_in("yaml")
(SHOWN,) = PAGE.written_in("text")
COMMANDS = [
    JOB.text[JOB.text.index("celery ") :].strip(),
    *(
        shlex.join(json.loads(line))
        for line in re.findall(r"command: (\[.*\])$", CONTAINER.text, re.MULTILINE)
    ),
]


@pytest.fixture
def waiting(shop):
    """Two tasks of the old image."""
    for number in (42, 43):
        due = f"2030-01-01T09:{30 * (number - 42):02}:00Z"
        shop.remind.s(number).set(task_id=f"order-{number}").delay_until(due)


@pytest.mark.usefixtures("waiting")
@pytest.mark.parametrize("command", COMMANDS)
def test_the_same_code_passes(environment, shop_file, command):
    said, status = said_by(command, environment, shop_file)
    assert (said, status) == ("no problem: looked at 2 tasks and 0 rules\n", 0)


@pytest.mark.usefixtures("waiting")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_new_argument_stops_the_roll_out(environment, shop_file, command):
    code = shop_file / "shop.py"
    code.write_text(re.sub(r"(def remind\(\w+)", r"\1, zone", code.read_text("utf-8")), "utf-8")

    said, status = said_by(command, environment, shop_file)

    assert status == 1
    assert shape(said) == shape(SHOWN.text)


def test_the_page_has_a_command_for_each_way():
    assert COMMANDS == ["celery -A shop delayq preflight"] * 2
