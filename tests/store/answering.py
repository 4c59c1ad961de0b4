"""A server that takes commands as Redis does, and answers each as a test says."""

import socketserver
import threading

from celery_delayq.core.servers.endpoint import Endpoint

OK = b"+OK\r\n"


class Answering(socketserver.ThreadingTCPServer):
    """``answer(words)`` returns the reply to a command; or ``None``, to hang up."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.answer, self.port = answer, self.server_address[1]
        self.place = Endpoint("127.0.0.1", self.port)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()


class _Conversation(socketserver.StreamRequestHandler):
    def handle(self):
        while head := self.rfile.readline():
            answer = self.server.answer([self._word() for _ in range(int(head[1:]))])
            if answer is None:
                return
            self.wfile.write(answer)

    def _word(self):
        return self.rfile.read(int(self.rfile.readline()[1:]) + 2)[:-2]
