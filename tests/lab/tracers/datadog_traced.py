"""Datadog's tracer with its Celery and kombu integrations; its agent's port is closed."""

import os

os.environ.update(
    DD_TRACE_AGENT_URL="http://127.0.0.1:1",
    DD_INSTRUMENTATION_TELEMETRY_ENABLED="false",
    DD_REMOTE_CONFIGURATION_ENABLED="false",
    DD_TRACE_STARTUP_LOGS="false",
)

import ddtrace
from ddtrace.trace import tracer

ddtrace.patch(celery=True, kombu=True)

if __name__ == "__main__":
    from tests.lab.tracers.calls import make

    make(
        lambda: tracer.trace("request"),
        lambda: format(tracer.current_root_span().trace_id, "032x"),
    )
