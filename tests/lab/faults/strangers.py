"""A sender without this package, and a worker that adopts its messages, or puts off its tasks.

sender --eta--------------> RabbitMQ --> worker --> store --> RabbitMQ --> worker --> a line
       \\--puts itself off-->

Only over AMQP: from a list of Redis, a killed kombu loses some messages itself.
"""

import json
import random
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from celery import Celery
from kombu.exceptions import OperationalError

from tests.lab.faults.callers import now_ms
from tests.lab.faults.history import NEVER, Call, Copy
from tests.support.waiting import eventually
from tests.support.worker import WorkerProcess

ETA = (1.5, 6.0)  # seconds ahead; the least value of the setting is 1
AFTER_MS = 1000  # how long a task puts itself off
PACE = 0.1
LEFT = re.compile(r"task (put_off-\d+): put off, until the eta of its message")


class Strangers:
    """The sender and the worker, from ``with`` on.

    Args:
        url: The broker's.
        conf: The worker's configuration.
        folder: For lines and logs.
        seed: For the messages.
    """

    def __init__(self, url: str, conf: Mapping, folder: Path, seed: str):
        self.calls: list[Call] = []
        self._queue = f"{conf['task_default_queue']}-in"
        self._conf = {**conf, "task_default_queue": self._queue, "delayq_adopt_after": 1}
        self._folder, self._lines = folder, folder / "lines"
        self._lines.touch()
        self._random = random.Random(f"{seed} strangers")
        self._app = Celery("stranger", broker=url, set_as_current=False)
        self._app.conf.task_default_queue = self._queue
        self._app.conf.broker_transport_options = {"confirm_publish": True}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._workers: list[WorkerProcess] = []

    def __enter__(self):
        self._start_worker().wait_ready()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for worker in self._workers:
            worker.kill()
        self._app.close()

    def _start_worker(self) -> WorkerProcess:
        log = self._folder / f"adopting-{len(self._workers)}.log"
        env = {
            "DELAYQ_TEST_CONF": json.dumps(self._conf),
            "DELAYQ_TEST_LINES": str(self._lines),
        }
        one = WorkerProcess("tests.lab.faults.adopt_app", "-P", "solo", log=log, env=env)
        self._workers.append(one)
        return one

    def kill_worker(self) -> None:
        """Kill it while it works; another one takes its place."""
        self._workers[-1].kill()
        self._start_worker()

    def _send(self) -> None:
        version = 0
        while not self._over.wait(self._random.uniform(0, 2 * PACE)):
            version += 1
            self._send_one(version)

    def _send_one(self, version: int) -> None:
        called = now_ms()
        if self._random.random() < 0.5:
            due = called + int(1000 * self._random.uniform(*ETA))
            eta = datetime.fromtimestamp(due / 1000, timezone.utc)
            name, how, span = "adopted", {"eta": eta}, (due, due)
        else:
            # Without a name it would run once more if it is delivered again.
            name, how, span = "put_off", {"message_id": str(version)}, (called + AFTER_MS, NEVER)
        task_id, answer = f"{name}-{version}", "done"
        try:
            self._app.send_task(name, (version,), task_id=task_id, retry=False, **how)
        except (OperationalError, OSError):
            answer = "unknown"
        self.calls.append(Call(task_id, "schedule", called, now_ms(), answer, version, span))

    # The end.

    def finish(self, seconds: float) -> tuple[list[Call], list[Copy]]:
        """Stop sending; return the calls, and the copies that arrived within *seconds*.

        A task that failed reports that it could not be put off; it may have been put off all the
        same. While the store is away, Celery keeps a task that puts itself off, in a message with
        an eta, and promises less: if its worker is killed before it has acknowledged the message
        before, both go on, and no copy is marked.
        """
        self._over.set()
        self._thread.join()
        sent = {call.task_id for call in self.calls if call.answer == "done"}
        with suppress(AssertionError):
            eventually(lambda: not sent - {line[0] for line in self._read()}, seconds)
        lines = self._read()
        assert any(task_id.startswith("adopted") and held for task_id, *_, held, _ in lines)
        failed = {task_id for task_id, *_, has_failed in lines if has_failed}
        calls = [
            replace(call, answer="unknown") if call.task_id in failed else call
            for call in self.calls
        ]
        left = {match for log in self._logs() for match in LEFT.findall(log)}
        copies = [Copy(*line[:4], line[4] or line[0] in left) for line in lines if not line[6]]
        return calls, copies

    def _logs(self) -> Iterator[str]:
        for log in self._folder.glob("adopting-*.log"):
            yield log.read_text(errors="replace")

    def _read(self) -> list[list]:
        return [json.loads(line) for line in self._lines.read_text().splitlines()]
