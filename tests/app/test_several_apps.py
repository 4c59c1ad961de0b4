"""Several apps in one process: each method of a ``DelayQ`` writes to the store of its own app."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from celery import Task, chain, chord, current_app, group, shared_task, signature

from celery_delayq import DelayQ
from celery_delayq.errors import InvalidOption, StoreDiffers
from tests.app.support import ALL_WAYS, FAR, LONG_AGO, comparable, lists, noop
from tests.rules.support import write

pytestmark = pytest.mark.libraries


@pytest.fixture
def apps(delayq_app, redis_server, redis):
    """Two apps with a broker and a store each; the second one is the current app."""
    made = [
        delayq_app(redis_server.url(db), redis_server.url(5), delayq_prefix=name)
        for db, name in enumerate(("first", "second"))
    ]
    for app, name in zip(made, ("first", "second"), strict=True):
        app.main = name
    return made


@pytest.fixture
def first(apps):
    return apps[0].delayq


@pytest.fixture
def second(apps):
    return apps[1].delayq


@pytest.fixture
def remind(apps):
    return shared_task(name="remind")(noop)


def ids_of(delayq):
    return [task.id for task in delayq.tasks()]


def here(call):
    return call()


def in_thread(call):
    """Call it in a thread, which has no current app, so that Celery makes one up."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(call).result()


SIGNATURES = {
    "signature": lambda task: task.s(1),
    "task": lambda task: task,
    "name": lambda task: signature(task.name, (1,)),
    "chain": lambda task: chain(task.s(1), task.si(2)),
    "group": lambda task: group(task.s(1), task.s(2)),
    "chord": lambda task: chord([task.s(1)], task.si(2)),
    "map": lambda task: task.map([1]),
    "frozen": lambda task: task.s(1).set(task_id="frozen"),
}


def run_of_rule(delayq, made):
    delayq.every("daily", made, 86_400)
    write(delayq)
    return ids_of(delayq)[0]


WAYS = {
    "schedule": lambda delayq, made: delayq.schedule(made, at=FAR).id,
    "every": run_of_rule,
    "schedule_many": lambda delayq, made: delayq.schedule_many(made, [((1,), {})], at=FAR).ids[0],
}
PLAIN = ("signature", "task", "name")


@pytest.mark.parametrize(
    ("way", "what"),
    [("schedule", what) for what in SIGNATURES]
    + [(way, what) for way in ("every", "schedule_many") for what in PLAIN],
)
@pytest.mark.parametrize("where", [here, in_thread])
def test_a_shared_task_waits_in_the_store_of_the_delayq_that_was_called(
    apps, remind, way, what, where
):
    first, second = (app.delayq for app in apps)

    task_id = where(lambda: WAYS[way](first, SIGNATURES[what](remind)))

    assert first.get(task_id).id == task_id
    assert second.counts().scheduled == 0
    assert first.cancel(task_id)


@pytest.mark.parametrize("what", ["signature", "chain", "map"])
def test_a_shared_task_is_due_at_the_broker_of_the_delayq_that_was_called(
    first, second, remind, redis_server, what
):
    first.schedule(SIGNATURES[what](remind), at=LONG_AGO)
    assert (second.hand_over(), first.hand_over()) == (0, 1)
    for db, found in ((0, [b"celery"]), (1, [])):
        with redis_server.client(db=db) as client:
            assert list(lists(client)) == found


def test_a_signature_s_own_method_goes_to_the_app_to_which_celery_sends_it(
    first, second, remind, redis_server
):
    remind.delay(1)
    with redis_server.client(db=1) as client:
        assert list(lists(client)) == [b"celery"]
    remind.delay_until(FAR, 1)
    remind.s(1).delay_until(FAR)
    chain(remind.s(1), remind.s(2)).delay_until(FAR)
    assert (first.counts().scheduled, second.counts().scheduled) == (0, 3)


REFUSED = {
    "task": lambda task: task,
    "signature": lambda task: task.s(1),
    "chain": lambda task: chain(task.s(1), task.s(2)),
    "group": lambda task: group(task.s(1)),
}


@pytest.mark.parametrize(
    ("way", "what"),
    [("schedule", what) for what in REFUSED] + [("every", "task"), ("schedule_many", "task")],
)
@pytest.mark.parametrize("of", ["second alone", "both"])
def test_a_task_that_celery_sends_by_another_app_is_refused(first, second, way, what, of):
    if of == "both":  # one object: Celery sends it by the app that registered it last

        class Remind(Task):
            name = "remind"

        task = Remind()
        first.app.register_task(task)
        second.app.register_task(task)
    else:
        task = second.app.task(name="remind", shared=False)(noop)

    with pytest.raises(InvalidOption) as caught:
        WAYS[way](first, REFUSED[what](task))

    assert str(caught.value) == (
        "signature is 'remind'; expected a task of the app first; for a task of another app use "
        "that app's DelayQ, or app.signature(name) to send it by its name"
    )
    assert first.counts().scheduled == second.counts().scheduled == 0


def test_the_name_of_another_app_s_task_is_sent_by_the_app_that_was_called(first, second):
    task = second.app.task(name="remind", shared=False)(noop)
    result = first.schedule(first.app.signature(task.name, (1,)), at=FAR)
    assert first.get(result).task == "remind"
    assert second.counts().scheduled == 0


def test_the_caller_s_signature_stays_as_it_is(first, remind):
    made = remind.s(1).set(queue="mail")
    before = dict(made), made.app, made.type
    first.schedule(made, at=FAR)
    assert (dict(made), made.app, made.type) == before


def test_a_delayq_of_the_current_app_stays_with_that_app(first, second):
    delayq = DelayQ(current_app)
    first.app.set_current()
    assert delayq.app is delayq.services.app is second.app


# One store under one prefix, and a broker each.


@pytest.fixture
def shop(delayq_app, url, redis_server):
    """Its broker is database 1; in its store a task of another app waits, whose broker is 0."""
    delayq_app(url).send_task("theirs", delayq_at=FAR)
    shop = delayq_app(redis_server.url(1), delayq_url=url)
    shop.task(name="remind")(noop)
    return shop


MORE_WAYS = {
    **ALL_WAYS,
    "schedule_many": lambda task, *args: task.app.delayq.schedule_many(
        task, [(args, {})] * 3, at=FAR
    ),
    "canvas": lambda task, *args: chain(task.s(*args), task.si(2)).delay_until(FAR),
    "every": lambda task, *args: task.app.delayq.every("daily", task.s(*args), 86_400),
    "load": lambda task, *_: task.app.delayq.load(list(task.app.delayq.dump())),
    "hand_over": lambda task, *_: task.app.delayq.hand_over(),
}


@pytest.mark.parametrize("way", MORE_WAYS)
def test_a_call_whose_task_would_be_due_at_another_broker_is_refused(shop, redis, way):
    before = ids_of(shop.delayq), redis.dbsize()
    with pytest.raises(StoreDiffers, match=r"^the store has broker 'redis, database 0', this pro"):
        MORE_WAYS[way](shop.tasks["remind"], 1)
    assert before == (ids_of(shop.delayq), redis.dbsize())


@pytest.mark.parametrize("count", [1, 2])
def test_a_captured_call_goes_to_its_own_broker_as_celery_sends_it(
    shop, redis_server, delayq_app, count
):
    shop.conf.delayq_capture_eta = True
    fixed = {"task_id": "a", "reply_to": "r", "root_id": "a", "eta": "2100-01-01T00:00:00+00:00"}
    sent = []
    for app in (shop, delayq_app(redis_server.url(1), delayq_enabled=False)):
        for _ in range(count):
            app.send_task("remind", (1,), **fixed)
        with redis_server.client(db=1) as client:
            [(key, messages)] = lists(client).items()
            client.delete(key)
        sent.append([comparable(one) for one in messages])
        for one in sent[-1]:
            one["headers"].pop("origin")

    assert sent[0] == sent[1]
    assert [task.task for task in shop.delayq.tasks()] == ["theirs"]


def test_whatever_was_left_to_celery_is_revoked_as_celery_does(shop):
    assert shop.delayq.services.membership.broker == "redis, database 1"
    told = []
    shop.control.broadcast = lambda command, **given: told.append((command, given["arguments"]))

    shop.control.revoke("a")

    [(command, arguments)] = told
    assert (command, arguments["task_id"]) == ("revoke", "a")


@pytest.mark.parametrize("way", ["delay_until", "schedule_many", "every"])
def test_a_broker_that_is_reached_in_another_way_is_the_same(delayq_app, url, redis_server, way):
    """A container may know it by another host than the one of the workers."""
    other = url.replace("127.0.0.1", "localhost")
    assert other != url
    delayq_app(url).delayq.hand_over()
    web = delayq_app(f"{other};{url}", delayq_url=url)
    MORE_WAYS[way](web.task(name="remind")(noop), 1)
    write(web.delayq)
    assert web.delayq.counts().scheduled
