"""Redis rights: the documented ones suffice for everything, and one less loses no task."""

import re

import pytest

from celery_delayq.core.store.scripts import load
from celery_delayq.errors import StoreError, StoreUnavailable
from tests.operations.restricted import RestrictedStore, documented
from tests.operations.table import OPERATIONS, each_operation, prepare, take_again


def commands_of(operation):
    """The commands that its script calls, or may call."""
    text = load()[operation.script].text
    return sorted(set(re.findall(r"redis\.p?call\('(\w+)'", text)))


@pytest.fixture
def restricted_on():
    made = []

    def make(server):
        made.append(RestrictedStore(server, documented()))
        return made[-1]

    yield make
    for store in made:
        store.close()


@each_operation
def test_the_documented_rights_suffice(each_redis, restricted_on, operation):
    assert operation.take(prepare(restricted_on(each_redis))) == operation.answer


@pytest.mark.parametrize(
    ("operation", "command"),
    [(one, command) for one in OPERATIONS for command in commands_of(one)],
    ids=lambda value: getattr(value, "script", value),
)
def test_without_one_right_nothing_is_lost_and_a_caller_can_call_again(
    redis_server, redis_url, restricted_on, operation, command
):
    """Lua does not roll back: a script's writes before the missing right stay."""
    store = restricted_on(redis_server)
    ready, failed = prepare(store), True
    store.allow(f"-{command}")
    try:
        answer = operation.take(ready)
    except StoreUnavailable:
        raise
    except StoreError:
        # A caller that got an error repeats the call once the right is there.
        store.allow(f"+{command}")
    else:
        failed = False

    gone = {one for one in ready.ids if not (store.record(one) and store.places(one))}
    may_go = set() if failed and operation.by == "caller" else {operation.ends}
    assert gone <= {*store.arrived(), *may_go}
    if operation.by == "caller":
        assert (take_again(operation, ready) if failed else answer) == operation.answer
