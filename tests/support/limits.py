"""The limits that a test lowers or raises, so that it needs no million tasks and no minute.

A test knows a limit by its name here; where the package keeps it stands in this file alone.
`python -m tests.lint_tests` finds a test that sets a constant of the package itself.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from types import ModuleType

# Names that end in _s are in seconds, in _ms in milliseconds; all others are numbers of things.
LIMITS = {
    # Connections, and how long one waits for a server.
    "answer_s": "core.servers.endpoint.TIMEOUT",
    "reach_s": "core.services.REACH",
    "connections": "core.servers.pool.MOST",
    "idle_store_s": "core.servers.pool.IDLE",
    "collect_again_s": "core.servers.pool.COLLECT_AGAIN",
    "wakeup_answer_s": "core.store.wakeup.TIMEOUT",
    "wakeup_ping_s": "core.store.wakeup.PING_AFTER",
    "descriptors_of_select": "core.store.wakeup.FD_SETSIZE",
    "moving_s": "contrib.moving.PATIENCE",
    "moving_again_s": "contrib.moving.AGAIN",
    "master_left_s": "contrib.moving.LEFT",
    "failover_listen_again_s": "contrib.sentinel.LISTEN_AGAIN",
    "failover_sign_s": "contrib.sentinel.SIGN_AFTER",
    "slots_try_s": "contrib.cluster.TRY",
    # The hand-over.
    "broker_connect_s": "core.handover.publishers.CONNECT_TIMEOUT",
    "broker_reach_s": "core.handover.publishers.REACH",
    "broker_idle_s": "core.handover.relay.IDLE",
    "broker_denied_s": "core.handover.relay.DENIED_FOR",
    "broker_slow_s": "core.handover.relay.SLOW",
    "first_window": "core.handover.relay.FIRST_WINDOW",
    "window": "core.handover.relay.WINDOW",
    "publish_s": "core.handover.scanner.PUBLISH_TIMEOUT",
    "relay_batch": "core.handover.relay.BATCH",
    "relay_refusals": "core.handover.relay.MAX_REFUSALS",
    "relay_wait_s": "core.handover.relay.LONGEST_WAIT",
    "outbox_s": "core.handover.scanner.INTERVAL",
    "hand_over_chunk": "core.store.delivery.CHUNK",
    "hand_over_bytes": "core.store.delivery.MAX_BYTES",
    "hand_over_refusals": "core.store.delivery.MAX_REFUSALS",
    "silent_ms": "core.store.membership.SILENT_MS",
    "thread_first_s": "core.threads.FIRST",
    "thread_longest_s": "core.threads.LONGEST",
    # Messages.
    "large_message_bytes": "core.message.outgoing.LARGE",
    "large_edit_bytes": "operations.bulk.LARGE",
    # What a request to the store takes at most.
    "schedule_bytes": "core.store.schedule.MAX_BYTES",
    "schedule_sent": "core.store.schedule.SENT_AT_MOST",
    "change_bytes": "core.store.changes.MAX_BYTES",
    "bulk_slice": "operations.bulk.SLICE",
    "catch_up_s": "contrib.care.migration.CATCH_UP",
    "load_slice": "contrib.care.load.SLICE",
    "preflight_shapes": "contrib.preflight.preflight.MOST_SHAPES",
    "preflight_rows": "contrib.preflight.preflight.MOST_ROWS",
    "selection_chunk": "core.tasks.selection.CHUNK",
    "selection_page": "core.store.selection.PAGE",
    "selection_page_most": "core.store.selection.MOST",
    "release_step": "operations.selection.STEP",
    "rewriting_step": "operations.selection.STEP",
    "undo_chunk": "contrib.undo.undoing.CHUNK",
    "page": "core.store.listing.PAGE",
    "page_bytes": "core.store.listing.PAGE_BYTES",
    "page_refused": "core.store.listing.REFUSED",
    "list_read": "core.store.listing.READ",
    "list_most": "core.store.listing.MOST",
    "find_step": "operations.finding._STEP",
    "overdue_seen": "core.store.counts.OVERDUE",
    "overdue_bytes": "core.store.counts.OVERDUE_BYTES",
    "queues_most": "operations.queues.MOST",
    "queues_step": "core.store.counts.STEP",
    "queues_step_bytes": "core.store.counts.STEP_BYTES",
    "queues_steps": "core.store.counts.MOST_STEPS",
    # Workers, and what they say.
    "worker_stop_s": "core.integration.delayq.STOP_TIMEOUT",
    "worker_first_look_s": "core.integration.startup.FIRST_LOOK",
    "workers_answer_s": "operations.queues.WORKERS_WAIT",
    "adoption_again_s": "contrib.adoption.batches.ASK_AGAIN",
    "query_answer_s": "contrib.consumer.ANSWER_WITHIN",
    "query_again_s": "contrib.consumer.ASK_AGAIN",
    "inspect_shown": "contrib.control.remote.SHOWN",
    "inspect_bytes": "contrib.control.remote.SHOWN_BYTES",
    "revoke_lately_ms": "contrib.control.remote.LATELY_MS",
    "events_answer_s": "contrib.events.TIMEOUT",
    "events_idle_s": "contrib.events.IDLE",
    "held_again_s": "contrib.held.AGAIN",
    "held_lease_s": "contrib.held.LEASE",
    "held_renew_s": "contrib.held.RENEW",
    # Rules.
    "rules_most": "contrib.rule_store.MOST_RULES",
    "rules_claimed": "contrib.rule_store.CLAIMED",
    "rules_sorted": "contrib.rules.face.SORTED",
    "rules_page": "contrib.rules.face.PAGE",
    "rules_page_ends": "contrib.rules.face._ENOUGH",
    # The command line and the page.
    "doctor_slow_ms": "contrib.care.doctor.SLOW_MS",
    "doctor_keys": "contrib.care.doctor.NAMED",
    "doctor_connect_s": "contrib.care.access.CONNECT_TIMEOUT",
    "doctor_answer_s": "contrib.care.access.TIMEOUT",
    "progress_s": "operations.cli.output.PATIENCE",
    "release_tells_s": "operations.cli.change.TELL_EVERY",
    "unknown_shown": "operations.cli.input.MOST",
    "web_list_s": "contrib.web.looking.SECOND",
    "web_list_look": "contrib.web.looking.LOOK",
    "web_list_shown": "contrib.web.looking.SHOWN",
    "web_others_s": "contrib.web.store_views.SECOND",
    "web_result_s": "contrib.web.past.WAIT",
    "web_history_shown": "contrib.web.past.EVENTS",
    "web_keys_shown": "contrib.web.store_views.SHOWN",
    "web_bulk_s": "contrib.web.many.SECOND",
}


class Limits:
    """Sets limits by their names: ``limits(selection_chunk=2)``."""

    def __init__(self, put: Callable[[object, str, float], None] = setattr) -> None:
        self._put = put

    def __call__(self, **values: float) -> None:
        for name, value in values.items():
            self._put(*_place(name), value)

    @contextlib.contextmanager
    def within(self, **values: float) -> Iterator[Callable[[], None]]:
        """Set limits for a block; what it yields sets them back before its end."""
        before = {name: getattr(*_place(name)) for name in values}

        def undo() -> None:
            for name, value in before.items():
                setattr(*_place(name), value)

        Limits()(**values)
        try:
            yield undo
        finally:
            undo()


def _place(name: str) -> tuple[ModuleType, str]:
    module, _, constant = f"celery_delayq.{LIMITS[name]}".rpartition(".")
    return importlib.import_module(module), constant
