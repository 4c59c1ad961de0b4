"""The deliveries that kombu's Redis transport keeps until they are acknowledged."""

from redis import Redis

from tests.support.waiting import eventually


def end_visibility(client: Redis) -> None:
    """Age all unacknowledged messages, so that the next worker to start delivers them again.

    A worker holds the lock while it puts overdue messages back. If it is killed meanwhile, the lock
    stays for five minutes, and stops every other worker and test of this database.
    """
    for tag in eventually(lambda: client.zrange("unacked_index", 0, -1)):
        client.zadd("unacked_index", {tag: 0})
    client.delete("unacked_mutex")
