"""New Relic's agent in developer mode: it instruments, and connects to nothing."""

import os

os.environ.update(
    NEW_RELIC_LICENSE_KEY="0" * 40,
    NEW_RELIC_DEVELOPER_MODE="true",
    NEW_RELIC_DISTRIBUTED_TRACING_ENABLED="true",
)

import newrelic.agent

newrelic.agent.initialize()
application = newrelic.agent.register_application(timeout=10)

if __name__ == "__main__":
    from tests.lab.tracers.calls import make

    make(
        lambda: newrelic.agent.BackgroundTask(application, name="request"),
        newrelic.agent.current_trace_id,
    )
