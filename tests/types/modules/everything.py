"""Each public name, used once; test_checkers.py compares them with those that there are.

A variable stands for the class whose attributes are read from it.
"""

from datetime import datetime, timedelta, timezone

# without stubs: import-untyped
from celery import Celery

from celery_delayq import (
    AlreadyScheduled,
    Defer,
    DelayQ,
    DelayQError,
    DelayQTask,
    InvalidDueTime,
    Item,
    Outcome,
    ScannerStep,
    ScheduledResult,
    ScheduledTask,
    State,
    errors,
    signals,
)
from celery_delayq.contrib.django import DelayQDjangoTask
from celery_delayq.contrib.testing import isolated
from celery_delayq.contrib.web import page_changed

NOW = datetime.now(timezone.utc)

app = Celery("shop", broker="redis://", task_cls=DelayQTask)
app.conf.update(
    delayq_adopt_after=300,
    delayq_batch_size=100,
    delayq_beat=True,
    delayq_capture_eta=True,
    delayq_catch_up=50,
    delayq_enabled=True,
    delayq_history=1000,
    delayq_history_repeats=False,
    delayq_lease=60,
    delayq_max_message=500_000,
    delayq_metrics_host="127.0.0.1",
    delayq_metrics_port=9000,
    delayq_min_delay=1,
    delayq_once=True,
    delayq_prefix="shop",
    delayq_remember=(60, 1000),
    delayq_safety_interval=1,
    delayq_shards=2,
    delayq_timeout=2,
    delayq_transport_options={"health_check_interval": 10},
    delayq_undo=(60, 1000),
    delayq_unknown_for=604800,
    delayq_url="redis://",
    delayq_wait_replicas=(1, 0.5),
)
delayq = DelayQ(app)


class Bill(DelayQTask[[int], bytes]):
    def run(self, order: int) -> bytes:
        if self.put_offs < 3:
            raise self.defer(after=5)
        raise Defer(at=NOW)


class Mail(DelayQDjangoTask[[int], None]):
    def run(self, order: int) -> None:
        print(order)


# On tasks.
bill, mail = Bill(), Mail()
result: ScheduledResult[bytes] = bill.delay_for(60, 42)
result = bill.delay_until(NOW, 42)
print(bill.put_offs, bill.defer(5))
kept_id: str = mail.delay_for_on_commit(60, 42)
kept_id = mail.delay_until_on_commit(NOW, 42)

# Of the result.
print(result.id, result.due, result.state, result.status, result.existed, result.replicas)
result.reschedule(after=5, only="earlier").value.upper()
result.edit(args=(43,), if_revision=1)
result.run_now()
result.cancel(revoke=True)

# Of DelayQ, about one task.
# without stubs: reportArgumentType
result = delayq.schedule(bill.s(42), at=NOW, key="order-42", tags=["orders"])
task: ScheduledTask | None = delayq.get("order-42")
state: State | None = delayq.state(key="order-42")
if (earlier := delayq.result("order-42")) is not None:
    print(earlier.due)
due: datetime | None = delayq.due_of(bill)
left: datetime | None = delayq.handed_over("order-42")
outcome: Outcome = delayq.cancel("order-42", revoke=True)
outcome = delayq.reschedule("order-42", after=5, if_due=NOW)
outcome = delayq.run_now("order-42")
outcome = delayq.retry("order-42")
outcome = delayq.remove("order-42")
outcome = delayq.edit("order-42", kwargs={"order": 43}, key="order-43", add_tags=["vip"])
print(delayq.undo("order-42", now=True).isoformat())

# About many.
bulk = delayq.schedule_many(bill, [Item((42,), {}, time=NOW, key="order-42")], after=60)
print(bulk.ids, bulk.existed, bulk.refused, bulk.replicas, bulk.scheduled)
bulk.raise_for_refused()
selection = delayq.select(tag="orders", state=State.SCHEDULED)
print([task.id for task in selection], selection.cursor, selection.bulk, selection.count())
selection.reschedule(by=60)
selection.run_now()
selection.edit(priority=3)


def priced(args: list[int], kwargs: dict[str, str]) -> "tuple[list[int], dict[str, str]] | None":
    return None if "currency" in kwargs else (args, {**kwargs, "currency": "EUR"})


edits = selection.edit(task={"shop.old": "shop.new"}, change=priced, dry_run=True)
print(edits.first, edits.refused, edits.why, edits.of_rules, edits.is_complete, edits.bulk)
print(edits.uncertain, edits.behind, edits.in_flight, edits.unreadable, edits.outstanding)
selection.retry()
selection.remove()
selection.cancel(dry_run=True)
count = selection.release(canvas=True)
print(count.uncertain, count.behind, count.in_flight, count.outstanding, count.bulk)
print(count.canvases, count.beyond, count.dead, count.unreadable, count.is_complete, count + 1)
undone = delayq.undo_all(count.bulk, progress=print)
print(undone.done, [error.reason for error in undone.refused], undone.lost, undone.reasons)
for undoable in delayq.undoable():
    print(undoable.id, undoable.when.isoformat(), undoable.bulk)

for task in delayq.tasks(queue="mail", task=bill, limit=10):
    print(
        task.args, task.argsrepr, task.kwargs, task.kwargsrepr, task.shown_arguments, task.facts()
    )
    print(task.attempts, task.error, task.next_try, task.dead_since, task.reason, task.put_offs)
    print(
        task.behind, task.behind_until, task.key, task.tags, task.paused_by, task.queue, task.task
    )
    print(task.changed, task.created, task.due, task.cursor, task.revision, task.state, task.id)
    print(task.headers, task.host, task.ignores_result, task.is_canvas, task.priority)

# Recurring tasks.
rule = delayq.every(
    "report",
    # without stubs: reportArgumentType
    bill.s(42),
    timedelta(hours=1),
    tz="UTC",
    missed="one",
    jitter=5,
    declared=False,
)
print(rule.name, rule.schedule, rule.tz, rule.task, rule.tags, rule.missed, rule.jitter)
print(rule.is_paused, rule.next, rule.last, rule.revision, rule.version, rule.source, rule.trouble)
print(rule.digest, rule.pause(), rule.resume(), rule.unskip(), rule.run().id, rule.remove())
print(rule.is_made_when_due, rule.is_declared, rule.skipped, rule.overdue)
if (skipped := rule.skip()) is not None:
    print(skipped.id, skipped.due.isoformat())
print(rule.edit("0 6 * * *", tz="Europe/Berlin", dialect="cron"), rule.back_to_code())
print(rule.rewrite(task="shop.new", change=priced))
if (edited := rule.edited) is not None:
    print(edited.by, edited.at.isoformat(), edited.schedule, edited.tz)
if (last_run := rule.last_run()) is not None:
    print(last_run.what)
print(delayq.rule("report"), [rule.name for rule in delayq.rules(tag="reports")])

# Keys, queues and the store.
if (holder := delayq.holder(key="order-42")) is not None:
    print(holder.key, holder.id, holder.state, holder.until, holder.delivered, holder.changed)
    print(holder.said_by, holder.delivery, delayq.free(key="order-42", if_holder=holder))
delayq.pause(queue="mail", late=True)
delayq.resume(queue="mail", rate=10)
print([pause.queue for pause in delayq.pauses()], delayq.counts().scheduled)
print(delayq.status(queues=False).facts(), delayq.health(max_overdue=60))
print([event.what for event in delayq.history(10, of="order-42")])
for finding in delayq.check():
    repaired = delayq.repair(finding)
    print(finding.kind, finding.id, finding.sentence, finding.repair)
    print(repaired.what, repaired.reason)
rows: list[tuple[object, ...]] = [("order:1", NOW, (1,)), ("order:2", NOW, [2], {})]
report = delayq.reconcile(bill, rows, tag="order", remove=True, dry_run=False, progress=print)
report = delayq.reconcile("bill", iter(rows), tag="order", late=True, most=5, since=NOW)
print(report.tag, report.dry_run, report.remembers, report.most, report.counts["changed"])
print(report.rows, report.is_complete, report.is_stopped, report.kept, report.warnings)
print(report.scheduled, report.changed, report.cancelled, report.unchanged, report.refused)
print(report.drift, report.remaining, report.bulk)
for case in report.first["changed"]:
    print(case.key, case.why, case.place, case.id, case.error)
flight = delayq.preflight()
print(flight.tasks, flight.rules, flight.dead, flight.problems)
for misfit in flight.misfits:
    print(misfit.task, misfit.reason, misfit.where, misfit.level, misfit.is_problem)
    print(misfit.count, misfit.first_due, misfit.id, misfit.sentence, misfit.advice)

loaded = delayq.load(delayq.dump(), skip_existing=True)
print(loaded.loaded, loaded.here, loaded.left, loaded.skipped, loaded.refused, loaded.unreadable)
handed_over: int = delayq.hand_over()
with delayq.acting("ann"):
    delayq.scanner().start()
# without stubs: reportOptionalSubscript
app.steps["worker"].add(ScannerStep)
print(delayq.app)
delayq.close()


# In an event loop.
async def view() -> None:
    print(await bill.adelay_for(60, 42), await bill.adelay_until(NOW, 42))
    # without stubs: reportArgumentType
    print(await delayq.aschedule(bill.s(42), after=5), await delayq.aget("order-42"))
    print(await delayq.acancel("order-42"), await delayq.areschedule("order-42", after=5))
    print(await delayq.arun_now("order-42"))
    print(await delayq.areconcile("bill", rows, tag="order"))
    selection = await delayq.aselect(tag="orders")
    print(await selection.acount(), await selection.acancel(), await selection.arun_now())
    print(await selection.areschedule(after=5))


# In tests.
with isolated(app, delayq_history=10) as shop:
    shop.advance(minutes=30)
    print(shop.now.isoformat(), [task.id for task in shop.scheduled(key="order-42")])
    for ran in shop.run_due(limit=10):
        print(ran.id, ran.task, ran.args, ran.kwargs, ran.state, ran.value, ran.traceback)
        print(ran.get())
    with shop.worker(pool="threads"):
        # without stubs: reportArgumentType
        print(shop.every("report", bill.s(42), 60).name, shop.select(all=True).edit(priority=3))


# Signals.
def hear(sender: object, **facts: object) -> None:
    print(sender, facts)


signals.task_scheduled.connect(hear)
signals.task_rescheduled.connect(hear)
signals.task_edited.connect(hear)
signals.task_cancelled.connect(hear)
signals.task_undone.connect(hear)
signals.task_skipped.connect(hear)
signals.task_handed_over.connect(hear)
signals.task_dead.connect(hear)
page_changed.connect(hear)

# What came of it.
OUTCOMES = {
    Outcome.DONE: 200,
    Outcome.BEHIND: 202,
    Outcome.UNCERTAIN: 202,
    Outcome.NOT_FOUND: 404,
    Outcome.HANDED_OVER: 409,
    Outcome.IN_FLIGHT: 409,
    Outcome.UNCHANGED: 409,
}
STATES = [State.SCHEDULED, State.PAUSED, State.IN_FLIGHT, State.DEAD]
try:
    bill.delay_for(60, 42)
except (AlreadyScheduled, InvalidDueTime, DelayQError) as error:
    print(error)
ERRORS: list[type[DelayQError]] = [
    errors.AlreadyDead,
    errors.AlreadyScheduled,
    errors.AlreadyTaken,
    errors.BrokerDown,
    errors.CallRejected,
    errors.CannotIsolate,
    errors.DelayQError,
    errors.EndlessTasks,
    errors.InFlight,
    errors.InvalidDueTime,
    errors.InvalidDump,
    errors.InvalidOption,
    errors.InvalidSetting,
    errors.ItemsRefused,
    errors.KeyHeld,
    errors.LibraryChanged,
    errors.MessageTooLarge,
    errors.NoDelayQ,
    errors.NoLeaf,
    errors.NotADueTime,
    errors.NotATask,
    errors.NotLoaded,
    errors.NotScheduled,
    errors.NotUndone,
    errors.PutOffTooOften,
    errors.RulesRemain,
    errors.StoreDiffers,
    errors.StoreError,
    errors.StoreForbidden,
    errors.StoreFull,
    errors.StoreUnavailable,
    errors.SwitchedOff,
    errors.UnknownSetting,
    errors.UnreadableRecord,
]
