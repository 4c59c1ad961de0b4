"""Four screens equal the files in `shown`: see `python -m tests.cli.screens`."""

from dataclasses import replace

import pytest

from celery_delayq.operations.cli import command_show, command_status
from celery_delayq.operations.cli.screen import text_of
from tests.cli.screens import COUNTS, FOLDER, ORDER, SCANNED, UTC, WIDTHS, files, ms


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_a_screen_is_as_its_file_has_it(path):
    assert files()[path] == path.read_text(encoding="utf-8")


def test_there_is_no_other_file():
    assert {*FOLDER.iterdir()} == {*files()}


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_its_terminal(width):
    texts = [text for path, text in files().items() if path.stem.endswith(f"-{width}")]

    assert max(len(line) for text in texts for line in text.splitlines()) <= width


def test_scanners_are_counted_with_their_hosts():
    lines = [text_of(line) for line in command_status.screen_of(SCANNED, "direct", UTC, None)]

    assert lines[1].endswith("   next in 4 s   scanners 2 on web1, web2")
    assert "no scanner" not in "".join(lines)


@pytest.mark.parametrize(("early_ms", "said"), [(1, False), (0, True)])
def test_a_task_is_overdue_from_its_due_time_on(early_ms, said):
    counts = replace(COUNTS, now_ms=ms(ORDER.due) - early_ms)

    lines = [text_of(line) for line in command_show.screen_of(ORDER, counts, [], UTC, None)]

    assert ("! it is overdue by 0 s" in lines) is said
