"""A DelayQ on a real Redis, scanners in threads of this process, and their deliveries."""

import json

from tests.relay import house as relay_house
from tests.support.shards import each
from tests.support.waiting import PATIENCE, eventually

QUEUE = "celery"


class House(relay_house.House):
    def __init__(self, app, server):
        super().__init__(app, where="")
        self.server = server
        self.client = server.client()

    def close(self) -> None:
        super().close()
        self.client.close()

    def start_asleep(self, count=1):
        """Start scanners, and wait until each of them listens, and has looked."""
        before = self.looked()
        self.start(count)
        eventually(lambda: self.looked() >= before + count)
        return self.scanners[-1]

    def asleep_towards(self, *delays, then, by=None):
        """Schedule tasks, and start a scanner that sleeps until the first is due; return the tasks.

        *then* changes the first, and says whether that came in time. On a busy machine it may be
        too late: it begins again. The house *by* schedules them, by its own links.
        """
        while True:
            results = [(by or self).task.delay_for(delay) for delay in delays]
            scanner = self.start_asleep()
            if then(results[0]):
                return results
            for _ in results:
                self.next_arrival()
            scanner.stop(PATIENCE)

    def asleep(self):
        """Schedule a far task, and start a scanner that sleeps towards it; return the task."""
        result = self.task.delay_for(3600)
        self.start_asleep()
        return result

    def await_looks(self, shards, count) -> None:
        """Wait until *count* scanners have looked at each of these shards."""
        keys = [one["scanners"] for one in shards]
        eventually(lambda: min(map(self.client.zcard, keys)) >= count)

    def looked(self) -> int:
        """How many scanners have looked at each shard and are still there."""
        return min(map(self.client.zcard, each("scanners")))

    def seconds(self) -> float:
        """Redis's clock."""
        seconds, micros = self.client.time()
        return seconds + micros / 1_000_000

    def arrived(self, queue=QUEUE) -> list[str]:
        """The ids in a queue, in order of arrival."""
        messages = self.client.lrange(queue, 0, -1)[::-1]
        return [json.loads(message)["headers"]["id"] for message in messages]

    def next_arrival(self, timeout=30) -> tuple[str, float]:
        """Wait for a message; returns its id, and Redis's time just after it came."""
        popped = self.client.brpop(QUEUE, timeout)
        assert popped, f"nothing arrived within {timeout} s"
        return json.loads(popped[1])["headers"]["id"], self.seconds()
