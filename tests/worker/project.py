"""One app on both sides: in a worker process, and in the test that schedules for it."""

import itertools
import json

from celery import Celery

from celery_delayq import DelayQ
from tests.support.apps import let_go_of_results
from tests.support.redis_server import RedisServer
from tests.support.waiting import PATIENCE, eventually
from tests.worker.jobs import EVIDENCE, GATE, RUNS, define

TASKS = "tests.worker.tasks"

_numbers = itertools.count(1)


class Project:
    """An app with its own queue and prefix, on a Redis that other projects use too.

    Database 0 is broker and store, 1 the result backend, 2 the evidence of the tasks.
    """

    def __init__(self, server: RedisServer, **conf: object):
        number = next(_numbers)
        self.server = server
        self.queue = f"queue{number}"
        self.patience = 5.0  # seconds that its workers have for a silent store
        self.conf = {
            "broker_url": server.url(),
            "result_backend": server.url(1),
            "task_default_queue": self.queue,
            "delayq_prefix": f"project{number}",
            "worker_hijack_root_logger": True,
            **conf,
        }
        self.app = Celery("worker-tests", set_as_current=False)
        self.app.conf.update(self.conf)
        self.delayq = DelayQ(self.app)
        self.tasks = define(self.app)
        self.client = server.client()
        self.evidence = server.client(db=2)

    @property
    def env(self) -> dict[str, str]:
        return {
            "DELAYQ_TEST_CONF": json.dumps(self.conf),
            "DELAYQ_TEST_PATIENCE": str(self.patience),
            EVIDENCE: self.server.url(2),
        }

    @property
    def plain_conf(self) -> dict[str, object]:
        """Its configuration before it installed this package."""
        return {name: value for name, value in self.conf.items() if "delayq" not in name}

    @property
    def plain_env(self) -> dict[str, str]:
        """The environment of its processes without this package."""
        return {**self.env, "DELAYQ_TEST_CONF": json.dumps(self.plain_conf)}

    def close(self) -> None:
        let_go_of_results(self.app)
        self.client.close()
        self.evidence.close()
        self.delayq.close()
        self.app.close()

    def runs(self, result) -> list[dict]:
        """The evidence that each run of a task wrote down, oldest first."""
        lines = self.evidence.lrange(RUNS.format(getattr(result, "id", result)), 0, -1)
        return [json.loads(line) for line in lines]

    def wait_runs(self, result, count: int = 1, timeout: float = PATIENCE) -> list[dict]:
        return eventually(
            lambda: runs if len(runs := self.runs(result)) >= count else None,
            timeout,
            f"{count} runs of {result}",
        )

    def let_go(self, result) -> None:
        """Let a waiting `hold` task end."""
        self.evidence.rpush(GATE.format(result.id), "1")

    def queued(self) -> int:
        """The number of messages in its queue, at either broker."""
        if self.conf["broker_url"].startswith("redis"):
            return self.client.llen(self.queue)
        with self.app.connection_for_read() as connection:
            found = connection.default_channel.queue_declare(self.queue, passive=True)
            return found.message_count

    def scanners(self) -> int:
        return self.delayq.counts().scanners
