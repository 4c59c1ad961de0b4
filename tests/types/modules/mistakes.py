"""Mistakes, each reported by both checkers: one that sees Any everywhere reports none of them.

Above a line are the codes that must be reported: `always`, or only `with stubs` of Celery's. A
code `without stubs` may be reported then, as pyright reads Celery's code instead.
"""

# without stubs: import-untyped
from celery import Celery, group

from celery_delayq import Defer, DelayQ, DelayQTask, Item, ScheduledResult
from celery_delayq.contrib.django import DelayQDjangoTask

app = Celery("shop", task_cls=DelayQTask)
delayq = DelayQ(app)


# without stubs: untyped-decorator
@app.task
def remind(order: int) -> str:
    return f"order {order}"


class Bill(DelayQTask[[int], bytes]):
    def run(self, order: int) -> bytes:
        return b"%d" % order


class Mail(DelayQDjangoTask[[int], None]):
    def run(self, order: int) -> None:
        print(order)


bill = Bill()

# No time.
# with stubs: arg-type, reportArgumentType
# without stubs: reportFunctionMemberAccess
remind.delay_until(None, 42)
# with stubs: arg-type, reportArgumentType
# without stubs: reportFunctionMemberAccess
remind.delay_for("soon", 42)
# always: arg-type, reportArgumentType
bill.delay_until(None, 42)
# always: arg-type, reportArgumentType
bill.delay_for("soon", 42)
# always: arg-type, reportArgumentType
delayq.schedule(bill, after="soon")
# always: arg-type, reportArgumentType
delayq.schedule(bill, at=b"2030-01-01")
# always: call-arg, reportCallIssue
delayq.schedule(bill, later=5)

# always: arg-type, reportArgumentType
Defer(after="soon")
# always: arg-type, reportArgumentType
bill.defer("soon")

# No policy, and no tags.
# always: arg-type, reportArgumentType
delayq.schedule(bill, after=5, conflict="first")
# always: arg-type, reportArgumentType
delayq.schedule(bill, after=5, tags="orders")
# always: arg-type, reportArgumentType
delayq.schedule(bill, after=5, late="skip", grace="60")
# always: arg-type, reportArgumentType
Item((42,), {}, conflict="first")

# Not the task's arguments.
# always: arg-type, reportArgumentType
bill.delay_for(60, "42")
# always: call-arg, reportCallIssue
bill.delay_for(60)
# always: call-arg, reportCallIssue
bill.delay_until("2030-01-01", 42, "CHF")
# always: call-arg, reportCallIssue
bill.delay_for(delay=60, order=42)
# always: arg-type, reportArgumentType
Mail().delay_for(60, "42")
# with stubs: arg-type, reportArgumentType
Mail().delay_on_commit("42")
# always: arg-type, reportArgumentType
Mail().delay_for_on_commit(60, "42")
# always: call-arg, reportCallIssue
Mail().delay_until_on_commit("2030-01-01")
# with stubs: reportUnknownMemberType
# always: attr-defined, reportAttributeAccessIssue
Mail().delay_for_on_commit(60, 42).cancel()
# with stubs: arg-type, reportArgumentType
# without stubs: reportArgumentType
delayq.schedule(bill.si("42"), after=5)

# Not what is returned.
# with stubs: assignment, reportAssignmentType
# without stubs: reportAssignmentType
text: str = bill.delay_for(60, 42).get()
# always: reportAssignmentType
# with stubs: assignment
scheduled: ScheduledResult[str] = bill.delay_for(60, 42)
result = delayq.schedule(group(bill.s(42)), after=5)
# always: assignment, reportAssignmentType
due: str = result.due
# always: arg-type, reportArgumentType
result.reschedule(after="soon")
# always: call-arg, reportCallIssue
result.cancel(terminate=True)
# with stubs: attr-defined, reportUnknownMemberType
# always: reportAttributeAccessIssue
result.cancle()  # to mypy, without stubs, its base may have anything
# always: union-attr, reportOptionalMemberAccess
delayq.get("order-42").due

# Not a task.
# with stubs: arg-type
# always: reportArgumentType
delayq.schedule("remind", after=5)
# always: list-item, reportArgumentType
delayq.schedule_many(bill, [1, 2], after=5)
# with stubs: arg-type
# always: reportArgumentType
DelayQ("shop")

# Convenient, and untyped.
# with stubs: attr-defined, reportUnknownMemberType
# always: reportAttributeAccessIssue
app.delayq.cancel("order-42")
# with stubs: attr-defined, reportUnknownMemberType, reportAttributeAccessIssue
# without stubs: reportAttributeAccessIssue, reportOptionalMemberAccess
bill.s(42).delay_for(60)


async def wrong() -> None:
    # always: arg-type, reportArgumentType
    await bill.adelay_for("soon", 42)
    # always: call-arg, reportCallIssue
    await delayq.acancel("order-42", terminate=True)
    # always: assignment, reportAssignmentType
    moved: int = await delayq.areschedule("order-42", after=5)
    print(moved)
