"""dramatiq: ``send_with_options(delay=…)``; a worker holds jobs that are not yet due."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from tests.lab.comparison.jobs import note
from tests.lab.comparison.ways.way import Role, Way

dramatiq.set_broker(RedisBroker(url=os.environ["COMPARISON_REDIS"]))
job = dramatiq.actor(note, actor_name="job")


class Driver(Way):
    roles = {"worker": Role(("dramatiq", __name__), r"Worker process is ready for action")}

    def send(self, label):
        job.send(label)

    def schedule(self, label, delay):
        return job.send_with_options(args=(label,), delay=int(delay * 1000)).message_id
