"""Delivered tasks that the store has to know: no call for one gets the answer NOT_FOUND."""

from tests.lab.simulator.driver import REMEMBER
from tests.lab.simulator.sight import GONE, Sight

KNOWN = "delivered"  # the place of an id that the store has to know

SECONDS, _ = REMEMBER  # far fewer tasks leave in a world than the store remembers


class Remembered:
    """Hears from the judge which entries left, and when, by Redis's clock."""

    def __init__(self) -> None:
        self._left_ms: dict[str, int] = {}
        self._now_ms = self._passed_ms = 0

    def passes(self, now_ms: int) -> None:
        """Count how far the clock went, but for the times when it was set back."""
        self._passed_ms += max(0, now_ms - self._now_ms)
        self._now_ms = now_ms

    def delivered(self, task_id: str) -> None:
        self._left_ms[task_id] = self._passed_ms

    def revoked(self, *ids: str) -> None:
        """These left in another way; perhaps in the step in which they came."""
        for task_id in ids:
            self._left_ms.pop(task_id, None)

    def place(self, sight: Sight, task_id: str | None) -> str:
        place, left_ms = sight.place(task_id), self._left_ms.get(task_id or "")
        is_known = left_ms is not None and self._passed_ms - left_ms < SECONDS * 1000
        return KNOWN if place == GONE and is_known else place
