"""Common tracers, each in its own process: each call has its trace, and a bulk has one."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.app.support import templates
from tests.lab.tracers.calls import ITEMS

ROOT = Path(__file__).parents[3]
PYTHON = Path(os.environ["DELAYQ_TRACERS"]).absolute() / "bin" / "python"
TRACERS = ("newrelic", "datadog", "opentelemetry", "sentry")
SINGLE = ("delay_for", "apply_async", "schedule")

# W3C's header, which all but one write, and Sentry's; each starts with the trace id.
TRACE = {"traceparent": r"00-([0-9a-f]{32})-", "sentry-trace": r"([0-9a-f]{32})-"}


@pytest.fixture(scope="module", params=TRACERS)
def found(request, redis_server):
    redis_server.empty()
    done = subprocess.run(
        [PYTHON, "-m", f"tests.lab.tracers.{request.param}_traced", redis_server.url()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def traces(headers):
    """The traces in a message's headers; one, if they agree."""
    return {
        re.match(pattern, headers[name])[1] for name, pattern in TRACE.items() if name in headers
    }


@pytest.mark.parametrize("way", SINGLE)
def test_a_single_call_is_in_the_trace_that_it_was_made_in(found, way):
    trace, [headers] = found[way]

    assert traces(headers) == {trace}


def test_single_calls_are_in_traces_of_their_own(found):
    assert len({found[way][0] for way in SINGLE}) == len(SINGLE)


@pytest.mark.parametrize("found", ["sentry"], indirect=True)
def test_the_spans_name_the_kind_of_broker(found):
    assert found["brokers"] == ["redis"]


@pytest.mark.usefixtures("found")
def test_calls_share_a_template_whatever_a_tracer_adds(redis_server):
    # Each way was used twice; at the first call, it was unknown whether another one follows.
    assert templates(redis_server.client()) == (1, 2 * len(SINGLE) + ITEMS - 1)


def test_a_bulk_is_in_one_trace(found):
    trace, messages = found["bulk"]

    assert len(messages) == ITEMS
    assert [traces(headers) for headers in messages] == [{trace}] * ITEMS
