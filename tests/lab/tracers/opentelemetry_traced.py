"""OpenTelemetry's Celery instrumentation; spans stay in this process."""

from opentelemetry import trace
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
trace.set_tracer_provider(provider)
CeleryInstrumentor().instrument()

if __name__ == "__main__":
    from tests.lab.tracers.calls import make

    make(
        lambda: trace.get_tracer("web").start_as_current_span("request"),
        lambda: format(trace.get_current_span().get_span_context().trace_id, "032x"),
    )
