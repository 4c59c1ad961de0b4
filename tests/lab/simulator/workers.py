"""Workers: they adopt messages with an eta, and run tasks that put themselves off."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tests.lab.simulator.books import Answer, Call
from tests.lab.simulator.clients import Planned
from tests.lab.simulator.driver import Raw, Taker, Unavailable, When, answers_in, is_done
from tests.lab.simulator.inbox import VISIBILITY, Delivery, Inbox, Message
from tests.lab.simulator.judge import Judge
from tests.lab.simulator.world import SECOND, START_US, Actor

NEAR = 6.0  # seconds; messages due within that are not adopted
POLL = 0.3  # seconds
SLICE = 2  # messages per call


def planned_message(
    dice: random.Random, number: int, ids: Sequence[str], *, has_name: bool, near: bool
) -> Message:
    """The message of this number, of one of some ids; *near*: due when it is hardly adopted."""
    puts_off = dice.random() < 0.4
    ahead_s = dice.choice((5, 10, 20, 30, 3600))
    at = When("at", START_US // 1000 + ahead_s * 1000 + 500 + number)
    when = When("after", dice.choice((0, 500, 2_000, 8_000)) + number) if puts_off else at
    relayed, shares = dice.random() < 0.4, dice.random() < 0.7
    plan = Planned(
        f"m{number}", "message", (dice.choice(ids),), when, relayed, shares, 15 * dice.random()
    )
    if near and not puts_off:
        ahead_s = plan.pause_s + NEAR + dice.choice((0.4, 0.7, 1.2))
        # An id of its own, as another entry's would be in its way.
        at = When("at", START_US // 1000 + round(ahead_s * 1000))
        plan = replace(plan, ids=(f"of{plan.name}",), when=at)
    return Message(plan, puts_off, has_name)


class Worker:
    """A process that gets messages; it may die between any two steps.

    Args:
        judge: Watches the worker.
        inbox: The source of messages.
        scripts: Makes this process's own.
        timeout: Seconds that its calls take at most.
        acks_first: Acknowledge messages before they are stored; a sabotage.
        runs_near: Leave messages that are due soon to Celery.
    """

    def __init__(
        self,
        judge: Judge,
        inbox: Inbox,
        scripts: Callable[[Actor], Any],
        timeout: float,
        *,
        acks_first: bool = False,
        runs_near: bool = False,
    ):
        self._judge = judge
        self._inbox = inbox
        self._scripts = scripts
        self._timeout = timeout
        self._acks_first = acks_first
        self._runs_near = runs_near

    def run(self, actor: Actor) -> None:
        """Work until there are no more messages."""
        self._actor, self._calls = actor, 0
        self._taker = Taker(self._scripts(actor), self._timeout, VISIBILITY)
        while not self._inbox.is_over:
            given = self._take()
            if self._acks_first:
                self._ack(given)
            near = [one for one in given if self._is_near(one)]
            self._adopt([one for one in given if not one.message.puts_off and one not in near])
            for one in near:
                self._leave(one)
            for one in given:
                if one.message.puts_off:
                    self._run(one)
            if not given:
                actor.sleep(POLL)

    def _take(self) -> list[Delivery]:
        """Messages of different ids: a second one with an id would be refused for the first."""
        given: list[Delivery] = []
        while len(given) < SLICE:
            one = self._inbox.take(self._actor, but={each.task_id for each in given})
            if one is None:
                break
            given.append(one)
        return given

    def _adopt(self, given: list[Delivery]) -> None:
        for one, is_kept in self._taker.adopt(given, self._schedule, self._actor.sleep):
            if not is_kept:
                self._judge.taken.ran(one, asked=self._is_answered)
            self._ack([one])

    def _run(self, one: Delivery) -> None:
        """Run a task that puts itself off, unless an earlier delivery did so."""
        is_taken = self._was_taken(one)
        if not is_taken:
            self._judge.taken.ran(one, asked=is_taken is False)
            self._may_die("runs")
            try:
                (answer,) = self._schedule([one], puts_off=True)
                is_put_off = is_done(answer)
            except Unavailable:
                is_put_off = False
            if not is_put_off:
                self._judge.taken.failed(one)
        self._ack([one])

    def _is_near(self, one: Delivery) -> bool:
        ahead_ms = one.message.plan.when.ms - (START_US + self._actor.world.now_us) // 1000
        return self._runs_near and not one.message.puts_off and ahead_ms < NEAR * 1000

    def _leave(self, one: Delivery) -> None:
        """Leave a message to Celery, unless an earlier delivery was adopted."""
        is_taken = self._was_taken(one)
        if not is_taken:
            self._judge.taken.ran(one, asked=is_taken is False)
            self._may_die("runs")
        self._ack([one])

    def _was_taken(self, one: Delivery) -> bool | None:
        """``None``: unknown, or it did not come before."""
        if not one.again:
            return None
        one.message.is_asked = True
        is_taken = self._taker.is_taken(one)
        if is_taken is False:
            self._judge.taken.let_through(one)
        return is_taken

    def _schedule(self, given: Sequence[Delivery], *, puts_off: bool = False) -> Raw:
        actor, self._calls = self._actor, self._calls + 1
        call = Call(
            *(f"{actor.name}.{self._calls}", "schedule", tuple(one.task_id for one in given)),
            *("", "", "", round(self._timeout * SECOND), actor.world.now_us, actor.slept_us),
            taking={one.task_id: one for one in given},
        )
        actor.begin(call)
        self._judge.began(call)
        actor.world.say(actor.name, f"{call.name}: takes {', '.join(map(_told, given))}")
        try:
            raw = self._taker.write(given, puts_off=puts_off)
        except Unavailable:
            self._end(call, None)
            raise
        self._end(call, answers_in(raw))
        return raw

    def _end(self, call: Call, answers: list[Answer] | None) -> None:
        actor, found = self._actor, answers or []
        how = "unavailable" if answers is None else "answered"
        actor.begin(None)
        self._is_answered = how == "answered"
        actor.world.say(actor.name, f"{call.name}: {how} {', '.join(map(str, found))}")
        self._judge.ended(call, how, found, actor.world.now_us, actor.slept_us)

    def _ack(self, given: Sequence[Delivery]) -> None:
        for one in given:
            self._may_die(f"acknowledges {one.message}")
            if self._actor.world.decisions.fault("ack lost", self._actor.step()):
                self._actor.world.say(one.worker, f"acknowledges {one.message}, which is lost")
            else:
                self._inbox.ack(one)

    def _may_die(self, before: str) -> None:
        actor = self._actor
        actor.may_fall_asleep()
        if actor.world.decisions.fault("dead", actor.step()):
            actor.world.say(actor.name, f"dies before it {before}")
            actor.die()


def _told(one: Delivery) -> str:
    return f"{one.message} as {one.task_id}"
