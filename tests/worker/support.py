"""The command line of a project, and the brokers beside its store."""

import redis

from tests.support.forked import run_forked
from tests.support.visibility import end_visibility
from tests.support.waiting import PATIENCE
from tests.support.worker import ROOT
from tests.worker.project import TASKS

WITHIN = ("-t", str(PATIENCE))  # it ends when the worker has replied


def celery(project, *arguments):
    """Run `celery -A tests.worker.tasks arguments` to its end."""
    return run_forked("-m", "celery", "-A", TASKS, *arguments, env=project.env, cwd=ROOT)


def health(project, *options):
    """The exit status of `delayq health`, and its lines."""
    done = celery(project, "delayq", "health", *options)
    return done.returncode, done.stdout.splitlines()


class Broker:
    """RabbitMQ, or a Redis other than the store's."""

    def __init__(self, url, rabbit=None):
        self.url, self._rabbit = url, rabbit

    def unacked(self, queue) -> int:
        """The number of messages that workers hold."""
        if self._rabbit is None:
            with redis.from_url(self.url) as client:
                return sum(f'"{queue}"'.encode() in one for one in client.hvals("unacked"))
        columns = ("name", "messages_unacknowledged")
        listed = self._rabbit.control("-q", "list_queues", *columns).splitlines()
        return sum(int(line.split()[1]) for line in listed if line.split()[0] == queue)

    def end_visibility(self) -> None:
        """Let the next worker get all messages again; RabbitMQ sends them by itself."""
        if self._rabbit is None:
            with redis.from_url(self.url) as client:
                end_visibility(client)
