"""What waits in the lists of a broker's Redis with a far eta goes into the store.

    slice --> stored, and marked --> removed from its list --> adopted
                                        | it was not there: a worker has it
                                        +--> the mark is taken back, and the entry

The order of all else is untouched. After a kill it can be repeated: what was stored and is still in
its list is recognised by its mark, and only removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ... import clock
from ...errors import AlreadyTaken, DelayQError
from ...logs import logger_of
from ...message.body import received
from ...message.outgoing import list_key
from ...services import Services
from ...store import Lists, Receipt
from .entries import Entering
from .far import Far, far_of

logger = logger_of(__name__)

SLICE = 200  # messages that are looked at in one step
AFTER = 60.0  # seconds that an eta is ahead at least, where no setting says so
PRIORITIES = 10


def adopt_lists(
    services: Services,
    queues: Iterable[str] = (),
    *,
    dry_run: bool = False,
    progress: Callable[[int], object] | None = None,
) -> int:
    """Adopt what waits with a far eta in lists of the broker's Redis.

    Args:
        services: Of the app.
        queues: Names of queues; by default all that the app knows.
        dry_run: Only count.
        progress: Called after each step with how many it is so far.

    Returns:
        How many were adopted, or would be.

    Raises:
        InvalidSetting: the broker is no Redis.
        StoreError: a Redis cannot be reached, or refuses. What was adopted before stays.
    """
    lists = services.broker_lists()
    names = list(queues) or [queue.name for queue in services.app.amqp.queues.values()]
    count = 0
    try:
        adopter = _Adopter(services, lists)
        for queue in names:
            for found in adopter.adopted(queue, dry_run=dry_run):
                count += found
                if progress:
                    progress(count)
    finally:
        lists.close()
    return count


class _Adopter:
    def __init__(self, services: Services, lists: Lists) -> None:
        self._services = services
        self._lists = lists
        self._entering = Entering(services)
        self._after = services.settings.adopt_after or AFTER
        self._accept = services.app.conf.accept_content
        self._channel = self._entering.sender.channel

    def adopted(self, queue: str, *, dry_run: bool) -> Iterator[int]:
        """How many of a queue are, slice by slice."""
        options = self._services.broker.options
        prefix = options.get("global_keyprefix", "")
        for key in dict.fromkeys(list_key(queue, one, options) for one in range(PRIORITIES)):
            yield from self._of_list(prefix + key, queue, dry_run=dry_run)

    def _of_list(self, key: str, queue: str, *, dry_run: bool) -> Iterator[int]:
        # What is put there meanwhile comes at the other end, and is not looked at.
        left, kept = self._lists.length(key), 0
        while left > 0 and (part := self._lists.part(key, kept, min(SLICE, left))):
            left -= len(part)
            far = [(raw, one) for raw in part if (one := self._far(raw, queue))]
            removed = 0 if dry_run else self._adopt(key, far)
            kept += len(part) - removed
            yield len(far) if dry_run else removed

    def _far(self, raw: bytes, queue: str) -> Far | None:
        try:
            message = received(raw, self._channel, self._accept)
            body = None if "task" in message.headers else message.payload
            one = far_of(self._services, message, body, queue, self._after)
        except Exception as error:  # nobody's message, or one that its worker refuses
            logger.debug("a message of queue %s is left as it is: %r", queue, error)
            return None
        return one if one is not None and one.is_far else None

    def _adopt(self, key: str, far: list[tuple[bytes, Far]]) -> int:
        answers = self._entering.write([one for _, one in far], again=True) if far else []
        return sum(
            self._take_out(key, raw, one, answer)
            for (raw, one), answer in zip(far, answers, strict=True)
        )

    def _take_out(self, key: str, raw: bytes, one: Far, answer: Receipt | DelayQError) -> bool:
        if not isinstance(answer, (Receipt, AlreadyTaken)):
            logger.warning("task %s: stays in its list: %s", one.task_id, answer)
            return False
        is_there = self._lists.remove(key, raw)
        if not is_there and isinstance(answer, Receipt):
            # The mark first: with it, a worker's message would be dropped when it comes again.
            until = clock.monotonic() + self._services.settings.timeout
            self._services.copies.forget(one.identity, until)
            self._services.entries.cancel(one.task_id)
        return is_there
