"""What waits in the lists of a broker's Redis with a far eta goes into the store.

    slice --> taken, as a consumer takes it --> stored, and marked --> acknowledged
                | no longer there: a worker has it        | refused
                                                          +--> back to its list

It delivers to itself: never is a message in a list and in the store at once, where a worker could
be given it. The order of all else is untouched. After a kill kombu gives back what was taken and
not acknowledged, when its visibility time-out is over, and the mark tells what was stored by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from kombu.utils.json import loads

from ...errors import AlreadyTaken, StoreError, StoreUnavailable
from ...logs import logger_of
from ...message.body import received
from ...message.outgoing import dumps, list_keys
from ...services import Services
from ...store import Lists, Receipt, Waiting
from .entries import Entering
from .far import Far, far_of

logger = logger_of(__name__)

SLICE = 200  # messages that are looked at in one step
AFTER = 60.0  # seconds that an eta is ahead at least, where no setting says so


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
    services.check()
    services.import_tasks()  # a task may say that it is not to be adopted
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


class _Found(NamedTuple):
    """A message that is to be adopted, as it waits and as it was read."""

    far: Far
    waiting: Waiting


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
        for key in list_keys(queue, options):
            yield from self._of_list(prefix + key, queue, dry_run=dry_run)

    def _of_list(self, key: str, queue: str, *, dry_run: bool) -> Iterator[int]:
        # What is put there meanwhile comes at the other end, and is not looked at.
        left, kept = self._lists.length(key), 0
        while left > 0 and (part := self._lists.part(key, kept, min(SLICE, left))):
            left -= len(part)
            far = [one for raw in part if (one := self._far(raw, queue))]
            if dry_run:
                yield len(far)
                kept += len(part)
                continue
            adopted = self._adopt(key, far)
            yield adopted
            kept += len(part) - adopted

    def _far(self, raw: bytes, queue: str) -> _Found | None:
        try:
            message = received(raw, self._channel, self._accept)
            body = None if "task" in message.headers else message.payload
            one = far_of(self._services, message, body, queue, self._after)
            if one is None or not one.is_far:
                return None
            info = message.delivery_info
            kept = dumps([loads(raw), info.get("exchange") or "", info["routing_key"]])
            return _Found(one, Waiting(raw, str(message.delivery_tag), kept))
        except Exception as error:  # nobody's message, or one that its worker refuses
            logger.debug("a message of queue %s is left as it is: %r", queue, error)
            return None

    def _adopt(self, key: str, far: list[_Found]) -> int:
        there = self._lists.take(key, [one.waiting for one in far]) if far else []
        taken = [one for one, is_there in zip(far, there, strict=True) if is_there]
        if not taken:
            return 0
        try:
            answers = self._entering.write([one.far for one in taken])
        except StoreError as error:
            if not (isinstance(error, StoreUnavailable) and error.may_have_run):
                self._lists.settle(key, [], [one.waiting for one in taken])
            raise
        done: list[Waiting] = []
        refused: list[Waiting] = []
        for one, answer in zip(taken, answers, strict=True):
            is_done = isinstance(answer, (Receipt, AlreadyTaken))
            (done if is_done else refused).append(one.waiting)
            if not is_done:
                logger.warning("task %s: stays in its list: %s", one.far.task_id, answer)
        self._lists.settle(key, done, refused)
        return len(done)
