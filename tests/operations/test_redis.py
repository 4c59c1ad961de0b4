"""Every operation has its effect on each Redis, and no other effect."""

from tests.operations.table import each_operation, prepare
from tests.store.support import CLOCK, NOW_MS, FakeStore

# These change only data about processes and counts.
OF_META = ("join", "recount", "secret")


def does_what_it_should(operation, store):
    ready = prepare(store)
    before = store.contents(all_keys=operation.script in OF_META)
    assert operation.take(ready) == operation.answer
    store.check()
    store.check_types()
    after = store.contents(all_keys=operation.script in OF_META)
    # `replicate` writes a value that is there already.
    assert (after != before) == (operation.changes and operation.script != "replicate")
    own = store.keys["due"].removesuffix("due").encode()
    foreign = {key for key in store.raw.scan_iter("*") if not key.startswith(own)}
    assert foreign == {CLOCK.encode(), *([b"celery"] if operation.script == "hand_over" else [])}


@each_operation
def test_each_operation_does_what_it_should_within_its_prefix(each_redis, store_on, operation):
    does_what_it_should(operation, store_on(each_redis, prefix="other.app"))


@each_operation
def test_each_operation_does_what_it_should_on_fakeredis(operation):
    does_what_it_should(operation, FakeStore())


@each_operation
def test_no_operation_wakes_a_scanner_if_nothing_became_due_earlier(ready, operation):
    # A scanner is up now.
    ready.store.raw.hset(ready.store.keys["meta"], "timer", f"{NOW_MS + 2000}:{ready.steps.name}")
    ready.store.raw.config_resetstat()
    operation.take(ready)
    told = "cmdstat_publish" in ready.store.raw.info("commandstats")
    assert told == (operation.script == "leave")
