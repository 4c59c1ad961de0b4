"""Sentry's SDK with its Celery integration; the test reads its envelopes instead of sending."""

import sentry_sdk
from sentry_sdk.integrations.celery import CeleryIntegration
from sentry_sdk.transport import Transport

brokers = set()  # the messaging systems named in the spans of publishing


class Dropped(Transport):
    def capture_envelope(self, envelope):
        """Send nothing."""
        spans = (envelope.get_transaction_event() or {}).get("spans", ())
        brokers.update(
            span["data"]["messaging.system"] for span in spans if span["op"] == "queue.publish"
        )


sentry_sdk.init(
    dsn="https://key@localhost/1",
    transport=Dropped,
    traces_sample_rate=1.0,
    integrations=[CeleryIntegration()],
)

if __name__ == "__main__":
    from tests.lab.tracers.calls import make

    make(
        lambda: sentry_sdk.start_transaction(name="request"),
        lambda: sentry_sdk.get_current_span().trace_id,
        lambda: sorted(brokers),
    )
