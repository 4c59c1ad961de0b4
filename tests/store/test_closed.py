"""A shard that is being resharded keeps steps out, level by level; they change nothing."""

import pytest

from celery_delayq.core.store.scripts import load
from celery_delayq.errors import StoreDiffers, StoreUnavailable
from tests.operations.table import OPERATIONS, RESHARD, prepare

NOW = "the store is being resharded, delayq_shards 1 to 3; until that is done, it can only be read"
SETTLE = ("ack", "nack", "hold")  # the ends of leases, and of runs
ALWAYS = ("join", "agreed", *RESHARD)


def closed(store, level):
    ready = prepare(store)
    store.raw.hset(store.keys["meta"], "closed", f"{level} 1 3 run")
    return ready, store.contents(all_keys=True)


def kept_out(operation, level):
    if operation.script in ALWAYS:
        return False
    if not operation.changes:
        return level > 2
    return level > 1 or operation.script not in SETTLE


@pytest.mark.parametrize("level", [1, 2, 3, 4])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_a_step_is_kept_out_and_nothing_is_written(store, operation, level):
    ready, before = closed(store, level)
    if not kept_out(operation, level):
        assert operation.take(ready) == operation.answer
        return
    with pytest.raises(StoreUnavailable if level < 3 else StoreDiffers) as error:
        operation.take(ready)
    assert store.contents(all_keys=True) == before
    if level < 3:
        assert (error.value.why, error.value.may_have_run) == (NOW, False)
    else:
        assert (error.value.theirs, error.value.ours) == ("3", "1")


def test_each_script_has_a_level():
    for name, script in load().items():
        has_gate = "\nlocal refusal = closed and rare().refusal_of(" in script.text
        is_call = "return change(request" in script.text
        assert (has_gate or is_call) == (name not in ALWAYS), name


def test_a_value_of_another_program_closes_nothing(store):
    store.raw.hset(store.keys["meta"], "closed", "2 one 3 run")
    store.schedule("a")
    assert store.entries.find("a")
