"""Code that a user writes and that both checkers accept.

Without Celery's stubs they report the codes above a line, all because of Celery: mypy skips
Celery; pyright reads its code, takes a task for the plain function, which has not even Celery's
own `delay`, and thinks that a signature may be None.
"""

from datetime import datetime, timedelta, timezone

# without stubs: import-untyped
from celery import Celery, chain, chord, group, shared_task

from celery_delayq import (
    AlreadyScheduled,
    Defer,
    DelayQ,
    DelayQError,
    DelayQTask,
    InvalidDueTime,
    Item,
    Outcome,
    ScheduledResult,
    ScheduledTask,
    State,
)
from celery_delayq.contrib.django import DelayQDjangoTask
from celery_delayq.errors import StoreUnavailable

app = Celery("shop", broker="redis://", task_cls=DelayQTask)
delayq = DelayQ(app)


# without stubs: untyped-decorator
@app.task
def remind(order: int) -> str:
    return f"order {order}"


# without stubs: untyped-decorator
@app.task(bind=True, name="later", max_retries=3)
def later(self: DelayQTask, order: int) -> None:
    due: datetime | None = delayq.due_of(self.request)
    print(due, self.delay_for(60, order).id)
    if self.put_offs < 3:
        raise self.defer(after=timedelta(seconds=5))
    raise Defer(at=datetime.now(timezone.utc))


# A class names its arguments, and what it returns.
class Bill(DelayQTask[[int, str], bytes]):
    name = "bill"

    def run(self, order: int, currency: str = "EUR") -> bytes:
        return f"{order} {currency}".encode()


bill = Bill()

# without stubs: reportFunctionMemberAccess
remind.delay(42)

# On tasks.
# without stubs: reportFunctionMemberAccess
first: ScheduledResult = remind.delay_until(datetime.now(timezone.utc), 42)
# without stubs: reportFunctionMemberAccess
remind.delay_until("2030-01-01T09:00:00Z", order=42).cancel()
# without stubs: reportFunctionMemberAccess
later.delay_for(timedelta(days=2), 42)
paid: ScheduledResult[bytes] = bill.delay_for(60, 42, "CHF")
# without stubs: reportOptionalMemberAccess
text: str = bill.delay_until(2_000_000_000, 42, "CHF").get(timeout=5).decode()

# On signatures, tasks and canvases.
# without stubs: reportFunctionMemberAccess
outcome: Outcome = delayq.schedule(remind.s(42), after=5).cancel(revoke=True)
# without stubs: reportArgumentType
delayq.schedule(remind, after=5).reschedule(by=timedelta(days=-1))
# without stubs: reportArgumentType
delayq.schedule(bill.si(42, "CHF"), at="2030-01-01").reschedule("2030-01-02")
delayq.schedule(chain(bill.si(1, "CHF"), bill.si(2, "CHF")), after=5).cancel()
delayq.schedule(chord([bill.si(1, "CHF")], bill.si(2, "CHF")), after=5).cancel()
waiting = delayq.schedule(group(bill.si(1, "CHF"), bill.si(2, "CHF")), after=5)
if waiting.state == "SCHEDULED" and waiting.due > datetime.now(timezone.utc):
    waiting.reschedule(after=60)

# A result to keep: of one type, whatever was scheduled.
kept: list[ScheduledResult] = [waiting, paid, delayq.schedule(bill, at="2030-01-01")]
print([(result.id, result.due, result.state) for result in kept])

# Many.
bulk = delayq.schedule_many(bill, (((number, "CHF"), {}) for number in range(9)), after=60)
ids: list[str] = [task_id for task_id in bulk.ids if task_id]
# without stubs: reportArgumentType
delayq.schedule_many(bill.s(currency="CHF"), [((42,), {})], spread=(timedelta(0), timedelta(1)))

# Keys, tags and policies.
debounced = delayq.schedule(
    bill, after=5, key="order-42", conflict="debounce", max_wait=timedelta(minutes=1)
)
existed: bool = debounced.existed
delayq.schedule(bill, after=5, tags=["orders", "CHF"], late="skip", grace=60)
items = [Item((number, "CHF"), {}, key=f"order-{number}", conflict="keep") for number in range(9)]
places: set[int] = delayq.schedule_many(bill, items, after=60).existed

# From outside.
found: ScheduledTask | None = delayq.get("order-42")
state: State | None = delayq.state("order-42")
for task in delayq.tasks(queue=["mail", "sms"], task=[bill, "later"], newest_first=True, limit=10):
    print(task.id, task.due.isoformat(), task.args, task.kwargs, task.priority, task.facts())
    print(delayq.cancel(task) == "done")
scheduled: int = delayq.counts().scheduled
if delayq.cancel("order-42") is Outcome.HANDED_OVER or delayq.reschedule("order-43", after=60):
    print(delayq.handed_over("order-42"))
handed_over: int = delayq.hand_over()
for finding in delayq.check():
    if finding.repair and not delayq.repair(finding):
        print(finding.kind, finding.id, finding.sentence)

try:
    bill.delay_for(60, 42, "CHF")
except (AlreadyScheduled, InvalidDueTime, StoreUnavailable) as error:
    print(error)
except DelayQError as error:
    print(error.so_far)


# Tasks of no app in particular.
# without stubs: untyped-decorator
@shared_task(base=DelayQTask)
def shared(order: int) -> None:
    print(order)


# without stubs: reportCallIssue
shared.delay_for(60, 42)

# With Django.
project = Celery("project", task_cls=DelayQDjangoTask)
delayq_of_project = DelayQ(project)


# without stubs: untyped-decorator
@project.task
def mail(order: int) -> None:
    print(order)


# without stubs: reportFunctionMemberAccess
mail.delay_on_commit(42)
# without stubs: reportFunctionMemberAccess
kept_id: str = mail.delay_for_on_commit(timedelta(minutes=30), 42)
# without stubs: reportFunctionMemberAccess
mail.delay_until_on_commit(datetime.now(timezone.utc), order=42)
# without stubs: reportFunctionMemberAccess
mail.delay_for(60, 42)

# An app that names no base, or names it as text: by the DelayQ object.
plain = Celery("plain", task_cls="celery_delayq:DelayQTask")


# without stubs: untyped-decorator
@plain.task
def old(order: int) -> None:
    print(order)


# without stubs: reportFunctionMemberAccess
DelayQ(plain).schedule(old.s(42), after=5).cancel()


# In an event loop.
async def view() -> None:
    result: ScheduledResult[bytes] = await bill.adelay_for(60, 42, "CHF")
    other: ScheduledResult[bytes] = await bill.adelay_until("2030-01-01", 42, "CHF")
    # without stubs: reportFunctionMemberAccess
    third: ScheduledResult[str] = await delayq.aschedule(remind.s(42), after=5, key="k")
    moved: Outcome = await delayq.areschedule(result, by=5)
    ended: Outcome = await delayq.acancel(key="k")
    task: ScheduledTask | None = await delayq.aget(other.id)
    many: int = await (await delayq.aselect(tag="x")).acancel(dry_run=True)
    print(third.id, moved, ended, task, many, await delayq.arun_now(result))
