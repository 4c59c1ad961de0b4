"""A server that answers each message with an error of SQS, and keeps none."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FACTS = {"Attributes": {"ApproximateNumberOfMessages": "0"}}  # of the queue


@contextlib.contextmanager
def answering(status: int, code: str) -> Iterator[int]:
    """Serve on a port of loopback, which this yields."""
    error = {"__type": f"com.amazonaws.sqs#{code}", "message": "as told"}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            is_message = self.headers["X-Amz-Target"].endswith(".SendMessage")
            body = json.dumps(error if is_message else FACTS)
            self.send_response(status if is_message else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()
