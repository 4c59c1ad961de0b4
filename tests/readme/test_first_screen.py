"""The first screen: ten lines of code, a real worker, and its output."""

import re

from tests.readme.document import README, page
from tests.readme.runner import run
from tests.readme.shape import shape
from tests.support.waiting import PATIENCE

SECTION = "celery_delayq"


def test_the_ten_lines_do_what_the_readme_shows(shop, environment, start_worker):
    _, second = README.written_in("python", SECTION)
    [shown] = README.written_in("text", SECTION)
    worker = start_worker("shop", "-P", "prefork", "-c", "1", env=environment)
    example = {"__name__": "example"}

    assert run(second, example) == 1

    worker.wait_log(rf"{example['forgotten'].id}\] succeeded")
    assert shop.delayq.counts().scheduled == 0
    logged = [line for line in worker.lines if re.search(r"shop\.remind\[|order \d+", line)]
    texts = [
        line.partition("] ")[2] for line in logged
    ]  # the README leaves out times and processes
    assert shape("\n".join(texts)) == shape(shown.text).rstrip("\n")
    assert "41" in logged[1]


def test_a_running_task_reads_when_it_was_due(shop, shop_file, environment, start_worker):
    [block] = page("guide/inside-tasks").written_in("python", "How late am I?")
    (shop_file / "reports.py").write_text(block.text, encoding="utf-8")
    worker = start_worker("reports", "-P", "solo", env=environment)

    shop.app.send_task("reports.report", delayq_after=0.2)

    late = worker.wait_log(r"(-?\d+\.\d+)s after it was due")
    assert 0 <= float(late[1]) < PATIENCE
