"""``celery delayq check``: a line for each finding, and a status by which a script can tell."""

import json

import pytest

from tests.app.support import FAR

KEY = "{delayq:0}:dead"


@pytest.fixture
def spoilt(app, redis):
    app.send_task("t", task_id="good", delayq_at=FAR)
    redis.zadd(KEY, {b"......lost\n": 1})


@pytest.mark.parametrize(("options", "said"), [([], "nothing found\n"), (["--json"], "")])
def test_of_a_store_that_fits_there_is_nothing_to_tell(app, run, options, said):
    app.send_task("t", task_id="good", delayq_at=FAR)
    result = run("check", *options)
    assert (result.exit_code, result.output) == (0, said)


@pytest.mark.usefixtures("spoilt")
def test_each_finding_is_a_line(run):
    result = run("check")
    says = "lost\\n: a dead letter has no record, so nothing can bring it back\n"
    assert (result.exit_code, result.output) == (1, says)


@pytest.mark.usefixtures("spoilt")
def test_or_a_line_of_json(run):
    result = run("check", "--json")
    assert result.exit_code == 1
    assert json.loads(result.output)["kind"] == "dead_without_record"
