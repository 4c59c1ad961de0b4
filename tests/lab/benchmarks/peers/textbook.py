"""The loop of a hundred blog posts: every second, range, then remove and publish one by one."""

import json
import sys
import time
import uuid
from datetime import datetime
from threading import Event

import redis

from tests.lab.benchmarks.peers.driver import run


class Textbook:
    """A ZSET whose members are the messages, and a loop of one second."""

    queue = "textbook:queue"

    def __init__(self, url: str):
        self._redis = redis.Redis.from_url(url)

    def schedule(self, due: datetime, label: str) -> None:
        message = {"id": str(uuid.uuid4()), "task": "bench.noop", "args": [1, 2, label]}
        self._redis.zadd("textbook:due", {json.dumps(message): due.timestamp()})

    hold = schedule

    def move(self) -> None:
        while True:
            for message in self._redis.zrangebyscore("textbook:due", 0, time.time()):
                if self._redis.zrem("textbook:due", message):
                    self._redis.lpush(self.queue, message)
            Event().wait(1)


if __name__ == "__main__":
    run(Textbook(sys.argv[1]))
