"""Compares the promises about messages that become entries with their fate."""

from typing import Any

from tests.lab.simulator.books import Call
from tests.lab.simulator.inbox import Delivery, Message


class Taken:
    """Gets every message that becomes an entry, runs, or is done."""

    def __init__(self, judge: Any):
        self._judge = judge
        self.messages: list[Message] = []

    def began(self, call: Call) -> None:
        """A call that finds a message that is an entry by now has to say so."""
        call.taken = {one.task_id for one in call.taking.values() if one.message.entries}

    def became(self, call: Call, one: Delivery) -> None:
        message, through = one.message, one.message.through
        # If the run that was let through could not put it off, that of an older copy still may.
        is_late = through and one.is_lost and one.number < through.number
        if is_late and not message.is_over:
            self._judge.found("taken", f"{message} becomes an entry, and was let through")
        message.entries += 1
        if message.entries > 1:
            self._judge.found("taken", f"{message} becomes an entry again, by {call.name}")

    def ran(self, one: Delivery, *, asked: bool) -> None:
        """A worker runs it.

        Args:
            one: The delivery.
            asked: Whether the store has answered before, and so must have returned its outcome.
        """
        message = one.message
        message.is_over = message.is_over or not message.puts_off
        if asked and one.was_taken:
            self._judge.found("taken", f"{message} runs, and had become an entry")
        # If the broker took a message back, its new worker gets the same answer.
        if message.entries and not one.again and one.is_held:
            self._judge.found("copies", f"{message} runs, unmarked, and became an entry")

    def let_through(self, one: Delivery) -> None:
        """The store has said that it did not become an entry, so it runs."""
        one.message.through = one

    def failed(self, one: Delivery) -> None:
        """Its task could not be put off; the failure is visible."""
        one.message.is_over = True

    def drained(self) -> None:
        for message in self.messages:
            if not message.is_gone:
                self._judge.found("left over", f"{message} is still with its broker")
            elif not message.entries and not message.is_over:
                self._judge.found("lost", f"{message} is nowhere")
