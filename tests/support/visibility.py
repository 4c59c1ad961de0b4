"""What kombu's Redis transport keeps of deliveries that nobody acknowledged yet."""

from redis import Redis

from tests.support.waiting import eventually


def end_visibility(client: Redis) -> None:
    """As if what is not acknowledged had been so for long: a worker that starts delivers it.

    The lock is whoever's puts back what is overdue. A worker killed meanwhile leaves it for five
    minutes, to every other worker and test of this database.
    """
    for tag in eventually(lambda: client.zrange("unacked_index", 0, -1)):
        client.zadd("unacked_index", {tag: 0})
    client.delete("unacked_mutex")
