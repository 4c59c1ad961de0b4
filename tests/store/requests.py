"""Single requests of changing calls: a test sends each as often, and as late, as it wants.

``celery_delayq/core/store/requests.py`` makes a caller's own requests; it also explains calls.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Entries, NewEntry
from celery_delayq.core.store.calls import OPERATION_BYTES
from celery_delayq.core.store.keys import target_of
from celery_delayq.core.store.membership import Registration
from celery_delayq.core.store.record import header_for
from tests.store.arguments import arguments
from tests.store.support import (
    CLOCK,
    FAR_MS,
    NO_EXTRAS,
    ROUTE,
    SETTINGS,
    Store,
    edited,
    new_record,
)

TIMEOUT_US = round(SETTINGS.timeout * 1_000_000)


@dataclass(frozen=True)
class Request:
    """One request; all requests of a call have the same operation and deadline."""

    store: Store
    script: str
    operation: bytes
    store_name: str
    issued: int
    deadline: int
    began: int
    arguments: dict[str, Any]

    def send(self) -> list[bytes]:
        """The reply without the time: the verdict, and the answer."""
        _, *reply = self.store.scripts.call(
            self.script,
            operation=self.operation,
            store=self.store_name,
            issued=self.issued,
            deadline=self.deadline,
            began=self.began,
            **self.arguments,
        )
        return reply

    def answer(self) -> bytes:
        """The answer to the call."""
        verdict, answer, *_ = self.send()
        assert verdict == b"answer"
        return answer

    def anew(self) -> "Request":
        """The same call, repeated now, as by a caller that still waits."""
        return replace(self, issued=now_us(self.store))


def now_us(store: Store) -> int:
    return int(store.raw.get(CLOCK))


def join(store: Store, membership=None, *, scanner=False, **settings: Any) -> Registration:
    """Let a process with these settings join."""
    scripts = store.scripts_with(**settings)
    member = Registration(scripts, membership or store.membership, scanner=scanner)
    member.join()
    return member


def request(store: Store, script: str, **about: Any) -> Request:
    """A request of a call, both made now."""
    join(store)
    name = store.raw.hget(store.keys["meta"], "store").decode()
    now, operation = now_us(store), os.urandom(OPERATION_BYTES)
    deadline = now + round(store.settings.timeout * 1_000_000)
    given = arguments(script, **about)
    return Request(store, script, operation, name, now, deadline, now, given)


class NotSentError(Exception):
    """A call ends before its request is sent."""


def entries_sent(store: Store, script: str, ask: Callable[[Entries], object]) -> list[Any]:
    """The `entries` that a process which has sent no template yet would send for this call."""
    scripts, sent = store.new_scripts(), []

    def on_call(name: str, arguments: dict[str, Any]) -> None:
        if name == script:
            sent.extend(arguments["entries"])
            raise NotSentError

    scripts.on_call = on_call
    with pytest.raises(NotSentError):
        ask(Entries([scripts], store.membership))
    scripts.connection.close()
    return sent


def schedule(
    store: Store,
    *ids: str,
    when=None,
    to="celery",
    share=False,
    supersede=False,
    conflict="",
    revokes="none",
    extras=NO_EXTRAS,
) -> Request:
    """Schedule one entry per id, due at the same time; *to* is a list, or ``None`` for a relay."""
    destination = header_for("R", ROUTE) if to is None else header_for("L", to)
    when = when or When("at", FAR_MS)
    records = [new_record(one, destination, share=share).with_extras(extras) for one in ids]
    new = [NewEntry(one, when, it, conflict) for one, it in zip(ids, records, strict=True)]
    return request(
        store,
        "schedule",
        supersede=int(supersede),
        revokes=revokes,
        entries=entries_sent(store, "schedule", lambda entries: entries.schedule(new)),
    )


def cancel(store: Store, task_id: str) -> Request:
    return request(store, "cancel", mode="cancel", targets=[target_of(task_id)])


def edit(store: Store, task_id: str, **options: Any) -> Request:
    """Give an entry, as it is now, another message, and so on: see `edited`."""
    entry = store.entries.find(task_id)
    new = edited(entry, **options)
    part = (
        *(target_of(task_id), entry.record.seen),
        *(new.header, new.labels + new.body, new.template),
    )
    return request(store, "rewrite", parts=part)


def reschedule(store: Store, task_id: str, mode="at", ms=FAR_MS + 1) -> Request:
    asked = {"mode": mode, "us": ms * 1000, "targets": [target_of(task_id)]}
    return request(store, "reschedule", **asked)
